// The charts, tables and words of what was computed.
const views = (() => {
  const id = (name) => document.getElementById(name);
  const FACTOR = 1e-5;
  let place = null;

  function connect(given) { place = given; }

  // a profile in the units of the chart's scale
  function units(scale, tokens) {
    const factor = scale === "share" ? 1 : tokens;
    return { factor, even: scale === "share" ? 1 / tokens : 1 };
  }

  const points = (mass, factor, span = mass.length) => {
    const step = mass.length > 1 ? (span - 1) / (mass.length - 1) : 1;
    return Array.from(mass, (value, j) => [j * step, value * factor]);
  };

  function lines(now, state, curves) {
    const { factor, even } = units(state.scale, now.tokens);
    const ghosts = now.passed.map(({ depth, mass }, k) => ({
      name: k === 0 || k === now.passed.length - 1 ? `after ${summary.count(depth, "layer")}` : "",
      class: `ghost ghost-${Math.round((6 * k) / Math.max(now.passed.length - 1, 1))}`,
      points: points(mass, factor), heading: `after ${depth}`, mass,
    }));
    const shown = curves.filter((curve) => state.shown.includes(curve.key)).map((curve) => ({
      name: `${curve.title} (measured, ${summary.count(curve.mass.length, curve.unit || "token")})`,
      class: `measured measured-${curves.indexOf(curve) % 6}`,
      points: points(curve.mass, (curve.mass.length * factor) / now.tokens, now.tokens), mass: curve.mass,
    }));
    return [
      ...limits(now, factor),
      ...ghosts,
      { name: "even spread", class: "even", points: [[0, even], [now.tokens - 1, even]] },
      ...shown,
      { name: `predicted, after ${summary.count(state.depth, "layer")}`, class: "final", points: points(now.mass, factor) },
    ];
  }

  // the envelope of attention alone, where there is one
  function limits({ envelope }, factor) {
    if (!envelope) return [];
    const sides = [["at most", envelope.upper], ["at least", envelope.lower]];
    return sides.filter(([, side]) => side).map(([name, side]) => {
      const mass = side.map((value) => Math.exp(Math.min(value, 0)));
      return { name: `bound, ${name}`, class: "bound", points: points(mass, factor), heading: name, mass };
    });
  }

  function range(drawn, logarithm) {
    let [least, most] = [Infinity, 0];
    for (const line of drawn.filter((one) => one.class !== "bound")) {
      for (const [, value] of line.points) {
        if (value > most) most = value;
        if (value > 0 && value < least) least = value;
      }
    }
    if (!logarithm) return { least: 0, most: most * 1.05, logarithm };
    const low = Math.max(least, most * FACTOR);
    return { least: nice(low, -1), most: nice(most, 1), logarithm };
  }

  // the next of 1, 3, 10, … below or above
  function nice(value, side) {
    const half = Math.log10(value) * 2;
    return 10 ** ((side < 0 ? Math.floor(half - 1e-9) : Math.ceil(half + 1e-9)) / 2);
  }

  function profile(now, state, curves) {
    const every = lines(now, state, curves);
    const y = range(every, state.scale === "logarithm");
    // a bound that lies outside the chart is not spoken of
    const within = ([, value]) => value >= y.least && value <= y.most;
    const drawn = every.filter((line) => line.class !== "bound" || line.points.some(within));
    now.limited = drawn.some((line) => line.class === "bound");
    if (state.scale !== "share") y.format = (value) => `${chart.rounded(value)}×`;
    else y.format = (value) => `${chart.rounded(100 * value)} %`;
    const x = { label: "position in the text", least: 0, most: now.tokens - 1, whole: true };
    chart.draw(id("profile"), { x, y, lines: drawn });
    chart.legend(id("profile-legend"), drawn.slice().reverse());
  }

  function mixing(now) {
    place(trajectory.draw(id("mixing"), now.architecture.mixing));
  }

  function layers(now, done) {
    const at = (value) => done.map(({ depth, mass }) => [depth, value(mass)]);
    const shares = [0, 1, 2].map((k) => at((mass) => summary.tenths(mass)[k]));
    const { rest, kept } = now.bounds;
    const all = [
      { name: "first tenth of the text", class: "first-tenth", points: [[0, 0], ...shares[0]] },
      { name: "what lies between", class: "between", points: [[0, 0], ...shares[1]] },
      { name: "last tenth", class: "last-tenth", points: [[0, 1], ...shares[2]] },
      { name: "the last token, at least", class: "bound kept", points: [[0, 1], ...kept.map((value, t) => [t + 1, value])] },
    ];
    if (rest) {
      all.push({ name: "all but the first token, at most", class: "bound",
        points: [[0, 1], ...rest.map((value, t) => [t + 1, Math.exp(value)])] });
    }
    const y = { least: 0, most: 1, format: (value) => `${Math.round(100 * value)} %` };
    chart.draw(id("layers"), {
      x: { label: "layers passed", least: 0, most: now.architecture.mixing.length, whole: true }, y, lines: all,
    });
    chart.legend(id("layers-legend"), all);
    id("bound").textContent = summary.bounded(now.bounds, now.tokens);
  }

  const shown = (value) => (value === 0 ? "0" : value.toPrecision(4));

  function tables(now, curves, state) {
    const drawn = lines(now, state, curves).filter((line) => line.mass && line.mass.length === now.tokens);
    const rows = Array.from(now.mass, (value, j) => [
      String(j), shown(value), shown(value * now.tokens), ...drawn.map((line) => shown(line.mass[j]))]);
    const head = ["position", "share", "× even spread", ...drawn.map((line) => line.heading || line.name)];
    chart.table(id("profile-numbers").querySelector("table"), head, rows);
    const layers = now.trajectory.map(({ depth, mass }) => [
      String(depth), ...summary.tenths(mass).map(shown), shown(mass[0]),
      shown(now.bounds.kept[depth - 1]), now.bounds.rest ? shown(Math.exp(now.bounds.rest[depth - 1])) : "–"]);
    chart.table(id("layers-numbers").querySelector("table"),
      ["layers", "first tenth", "between", "last tenth", "first token",
        "last token, at least", "all but the first, at most"], layers, 129);
    chart.table(id("mixing-numbers").querySelector("table"), ["layer", "λ"],
      now.architecture.mixing.map((value, t) => [String(t), shown(value)]), 129);
  }

  function words(now, caveats, exact) {
    const said = summary.profile(now.mass, now.lost, now.architecture.mixing.length);
    if (now.limited) said.push(summary.envelope());
    if (!exact) said.unshift("Part of the encoding is left out or chosen (below), so this is no verdict on a model.");
    id("said").replaceChildren(...said.map((text) => Object.assign(document.createElement("p"), { textContent: text })));
    id("caveats").textContent = caveats.length ? `Taken for granted: ${caveats.join("; ")}.` : "";
  }

  return { connect, layers, mixing, profile, tables, words };
})();
