// The charts, tables and words of what was computed.
const views = (() => {
  const id = (name) => document.getElementById(name);
  const FACTOR = 1e-5;

  function lines(now, state, curves) {
    const { tokens } = now;
    const times = state.scale === "share" ? 1 : tokens;
    const last = now.passed.length - 1;
    const ghosts = now.passed.map(({ depth, mass }, k) => ({
      name: k === 0 || k === last ? `after ${depth}` : "", heading: `after ${depth}`,
      class: `ghost ghost-${Math.round((6 * k) / Math.max(last, 1))}`, ys: mass, times,
    }));
    const shown = curves.filter((curve) => state.shown.includes(curve.key)).map((curve) => ({
      name: `${curve.title}, measured`, class: `measured measured-${curves.indexOf(curve) % 6}`, ys: curve.mass,
      times: (curve.mass.length * times) / tokens, step: (tokens - 1) / (curve.mass.length - 1),
    }));
    const { band, envelope } = now;
    const bound = (side) => side.map((value) => Math.exp(Math.min(value, 0)));
    return [
      ...(band ? [{ name: "under each known λ", class: "band", ys: band.high, low: band.low, times }] : []),
      ...[["at most", envelope?.upper], ["at least", envelope?.lower]].filter(([, side]) => side)
        .map(([name, side]) => ({ name: `bound, ${name}`, heading: name, class: "bound", ys: bound(side), times })),
      ...ghosts,
      { name: "uniform", class: "even", ys: [1 / tokens, 1 / tokens], times, step: tokens - 1 },
      ...shown,
      { name: `after ${summary.count(state.depth, "layer")}`, class: "final", ys: now.mass, times },
    ];
  }

  function range(drawn, logarithm) {
    let [least, most] = [Infinity, 0];
    for (const { ys, low, times } of drawn.filter((line) => line.class !== "bound")) {
      for (const values of low ? [ys, low] : [ys]) {
        for (let k = 0; k < values.length; k++) {
          const value = values[k] * times;
          if (value > most) most = value;
          if (value > 0 && value < least) least = value;
        }
      }
    }
    if (!logarithm) return { least: 0, most: most * 1.05, logarithm };
    return { least: nice(Math.max(least, most * FACTOR), -1), most: nice(most, 1), logarithm };
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
    const within = ({ ys, times }) => ys.some((value) => value * times >= y.least && value * times <= y.most);
    const drawn = every.filter((line) => line.class !== "bound" || within(line));
    now.limited = drawn.some((line) => line.class === "bound");
    y.format = state.scale === "share" ? (value) => `${chart.rounded(100 * value)} %` : (value) => `${chart.rounded(value)}×`;
    const label = now.tokens === state.tokens ? "position" : `position (preview of ${summary.count(now.tokens, "token")})`;
    const x = { label, least: 0, most: now.tokens - 1, whole: true };
    chart.draw(id("profile"), { x, y, lines: drawn });
    chart.legend(id("profile-legend"), drawn.slice().reverse());
  }

  function layers(now, done) {
    const xs = [0, ...done.map(({ depth }) => depth)];
    const each = [0, ...now.architecture.mixing.map((_, t) => t + 1)];
    const shares = [0, 1, 2].map((k) => [k === 2 ? 1 : 0, ...done.map(({ shares: found }) => found[k])]);
    const { rest, kept } = now.bounds;
    const all = [
      { name: "first 5 %", class: "first-tenth", xs, ys: shares[0] },
      { name: "between", class: "between", xs, ys: shares[1] },
      { name: "last 5 %", class: "last-tenth", xs, ys: shares[2] },
      { name: "last token, at least", class: "bound kept", xs: each, ys: [1, ...kept] },
    ];
    if (rest) all.push({ name: "all but the first, at most", class: "bound", xs: each, ys: [1, ...rest.map(Math.exp)] });
    const y = { least: 0, most: 1, format: (value) => `${Math.round(100 * value)} %` };
    const x = { label: "layers", least: 0, most: now.architecture.mixing.length, whole: true };
    chart.draw(id("layers"), { x, y, lines: all });
    chart.legend(id("layers-legend"), all);
    id("bound").textContent = summary.bounded(now.bounds, now.tokens);
  }

  const shown = (value) => (value === 0 ? "0" : value.toPrecision(4));

  function tables(now, curves, state) {
    const drawn = lines(now, state, curves).filter(({ ys }) => ys !== now.mass && ys.length === now.tokens)
      .flatMap(({ name, heading, ys, low }) => (
        low ? [{ name: "known λ, least", ys: low }, { name: "known λ, most", ys }] : [{ name: heading || name, ys }]));
    chart.table(id("profile-numbers").querySelector("table"),
      ["position", "share", "relative to uniform", ...drawn.map(({ name }) => name)], now.tokens,
      (j) => [String(j), shown(now.mass[j]), shown(now.mass[j] * now.tokens), ...drawn.map(({ ys }) => shown(ys[j]))]);
    const { rest, kept } = now.bounds;
    chart.table(id("layers-numbers").querySelector("table"),
      ["layers", "first 5 %", "between", "last 5 %", "first token", "last token, at least", "all but the first, at most"],
      now.trajectory.length, (k) => {
        const { depth, shares, first } = now.trajectory[k];
        return [String(depth), ...shares.map(shown), shown(first), shown(kept[depth - 1]),
          rest ? shown(Math.exp(rest[depth - 1])) : "–"];
      }, 129);
    const { mixing } = now.architecture;
    chart.table(id("mixing-numbers").querySelector("table"), ["layer", "λ"], mixing.length,
      (t) => [String(t), shown(mixing[t])], 129);
  }

  function words(now, caveats, exact) {
    const said = summary.profile(now, exact);
    if (now.limited) said.push(summary.envelope());
    id("said").replaceChildren(...said.map((text) => Object.assign(document.createElement("p"), { textContent: text.replaceAll(" %", "\u00a0%") })));
    id("caveats").textContent = caveats.length ? `Taken for granted: ${caveats.join("; ")}.` : "";
  }

  return { layers, profile, tables, words };
})();
