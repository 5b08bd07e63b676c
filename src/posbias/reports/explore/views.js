// What the charts show, in words.
const summary = (() => {
  const percent = (share) => {
    if (share > 0 && share < 0.0005) return "less than 0.1 %";
    return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
  };
  // a share that may be next to all
  const nearly = (share) => {
    if (share <= 0.995 || share === 1) return percent(share);
    return share > 0.9999 ? `100 % − ${(100 * (1 - share)).toPrecision(1)} %` : `${(100 * share).toPrecision(4)} %`;
  };
  // a share that may be next to none
  const small = (share) => (share > 0 && share < 0.0005 ? `${(100 * share).toPrecision(2)} %` : percent(share));
  const count = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;

  // how many positions count as an end, as posbias.profiles.summary has it (½ rounds to even)
  function endsOf(tokens) {
    const part = 0.05 * tokens;
    const whole = Math.round(part);
    return Math.max(1, part % 1 === 0.5 && whole % 2 ? whole - 1 : whole);
  }

  const sum = (mass, from, to) => {
    let total = 0;
    for (let j = from; j < to; j++) total += mass[j];
    return total;
  };

  // the share of the first 5 % of positions, of those between, and of the last 5 %
  function shares(mass) {
    const end = endsOf(mass.length);
    return [sum(mass, 0, end), sum(mass, end, mass.length - end), sum(mass, mass.length - end, mass.length)];
  }

  // the verdict of posbias.profiles.summary, and the shares that it rests on
  function shape(mass) {
    const tokens = mass.length;
    const end = endsOf(tokens);
    const [first, between, last] = shares(mass);
    const middle = (end * between) / (tokens - 2 * end);
    let [least, now] = [first, first];
    for (let j = end; j < tokens; j++) {
      now += mass[j] - mass[j - end];
      if (now < least) least = Math.max(now, 0);
    }
    const favoured = [first, last].map((one) => one > 1.25 * least && one > middle && one >= (0.1 * end) / tokens);
    if (favoured[0] && favoured[1]) return { verdict: "U", first, last };
    if (favoured[0] || favoured[1]) return { verdict: favoured[0] ? "primacy" : "recency", first, last };
    return { verdict: middle > 1.25 * Math.max(first, last) ? "middle" : "flat", first, last };
  }

  function profile({ mass, lost, architecture, band }, exact) {
    const [first, between, last] = shares(mass);
    const end = endsOf(mass.length) / mass.length;
    const { verdict } = shape(mass);
    const sure = !band || band.shapes.every((one) => one.verdict === verdict);
    const open = exact ? "since λ is not known and decides it; with the one assumed" :
      "since part of the encoding is left out or chosen; as computed";
    return [
      (exact && sure ? `Verdict: ${verdict}. ` : `No verdict on a model, ${open}: ${verdict}. `) +
        `Through ${count(architecture.mixing.length, "layer")} the first 5 % of ${count(mass.length, "token")} have ` +
        `${percent(first)} of the influence on the last token, the last 5 % ${percent(last)}, those between ` +
        `${percent(between)}; uniform would be ${percent(end)}, ${percent(end)} and ${percent(1 - 2 * end)}.`,
      ...(band ? [known(band, verdict)] : []),
      `The first token alone has ${percent(mass[0])}, the last one ${percent(mass[mass.length - 1])}.` +
        (lost > 0 ? ` Learned sinks took ${percent(lost)}.` : ""),
    ];
  }

  // what another λ would change, for the λ of this curve is assumed
  function known({ shapes, models }, verdict) {
    const span = (name) => {
      const all = shapes.slice(0, models).map((one) => one[name]);
      return `${percent(Math.min(...all))} to ${percent(Math.max(...all))}`;
    };
    const others = shapes.filter((one) => one.verdict !== verdict);
    return `λ is assumed. Under the λ of each of ${models} pretrained models (shaded) the first 5 % have ${span("first")}, ` +
      `the last 5 % ${span("last")}. The verdict is the same under ${shapes.length - others.length} of ${shapes.length} known λ` +
      (others.length ? `; ${others.map((one) => `${one.verdict} under that of ${one.name}`).join(", ")}.` : ".");
  }

  // what bounds all but the first token, or why nothing does; and what bounds the last one
  function bounded({ rest, own }, architecture) {
    const last = `The last token keeps at least ${small(own.at(-1))} of itself: the product of 1 − (1 − ε)·λ, with ε ` +
      "its weight for itself (Herasimchyk et al. 2026, Theorem 5.4 (i)).";
    if (kernel.ahead(architecture)) return `The bound on all but the first token needs a mask under which no query sees a later key. ${last}`;
    if (!rest) return `In every layer some query does not see the first token: nothing bounds all but it. ${last}`;
    return `All positions but the first together hold at most ${nearly(Math.exp(rest.at(-1)))}: the product of 1 − ε·λ over ` +
      `layers, with ε the least weight of the first token in a layer (Wu et al. 2025, Theorem 4.1, with λ). ${last}`;
  }

  return { bounded, count, profile, shape, shares };
})();

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
    const { band } = now;
    return [
      ...(band ? [{ name: "under each known λ", class: "band", ys: band.high, low: band.low, times }] : []),
      ...ghosts,
      { name: "uniform", class: "even", ys: [1 / tokens, 1 / tokens], times, step: tokens - 1 },
      ...shown,
      { name: `after ${summary.count(state.depth, "layer")}`, class: "final", ys: now.mass, times },
    ];
  }

  function range(drawn, logarithm) {
    let [least, most] = [Infinity, 0];
    for (const { ys, low, times } of drawn) {
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
    const drawn = lines(now, state, curves);
    const y = range(drawn, state.scale === "logarithm");
    y.format = state.scale === "share" ? (value) => `${chart.rounded(100 * value)} %` : (value) => `${chart.rounded(value)}×`;
    const label = now.tokens === state.tokens ? "position" : `position (preview of ${summary.count(now.tokens, "token")})`;
    const x = { label, least: 0, most: now.tokens - 1, whole: true };
    chart.draw(id("profile"), { x, y, lines: drawn });
    chart.legend(id("profile-legend"), drawn.reverse());
  }

  function layers(now) {
    const done = now.trajectory;
    const xs = [0, ...done.map(({ depth }) => depth)];
    const each = [0, ...now.architecture.mixing.map((_, t) => t + 1)];
    const shares = [0, 1, 2].map((k) => [k === 2 ? 1 : 0, ...done.map(({ shares: found }) => found[k])]);
    const { rest, own } = now.bounds;
    const all = [
      { name: "first 5 %", class: "first-tenth", xs, ys: shares[0] },
      { name: "between", class: "between", xs, ys: shares[1] },
      { name: "last 5 %", class: "last-tenth", xs, ys: shares[2] },
      { name: "last token, at least", class: "bound kept", xs: each, ys: [1, ...own] },
    ];
    if (rest) all.push({ name: "all but the first, at most", class: "bound", xs: each, ys: [1, ...rest.map(Math.exp)] });
    const y = { least: 0, most: 1, format: (value) => `${Math.round(100 * value)} %` };
    const x = { label: "layers", least: 0, most: now.architecture.mixing.length, whole: true };
    chart.draw(id("layers"), { x, y, lines: all });
    chart.legend(id("layers-legend"), all);
    id("bound").textContent = summary.bounded(now.bounds, now.architecture);
  }

  const shown = (value) => (value === 0 ? "0" : value.toPrecision(4));

  function tables(now, curves, state) {
    const drawn = lines(now, state, curves).filter(({ ys }) => ys !== now.mass && ys.length === now.tokens)
      .flatMap(({ name, heading, ys, low }) => (
        low ? [{ name: "known λ, least", ys: low }, { name: "known λ, most", ys }] : [{ name: heading || name, ys }]));
    chart.table(id("profile-numbers").querySelector("table"),
      ["position", "share", "relative to uniform", ...drawn.map(({ name }) => name)], now.tokens,
      (j) => [String(j), shown(now.mass[j]), shown(now.mass[j] * now.tokens), ...drawn.map(({ ys }) => shown(ys[j]))]);
    const { rest, own } = now.bounds;
    chart.table(id("layers-numbers").querySelector("table"),
      ["layers", "first 5 %", "between", "last 5 %", "first token", "last token, at least", "all but the first, at most"],
      now.trajectory.length, (k) => {
        const { depth, shares, first } = now.trajectory[k];
        return [String(depth), ...shares.map(shown), shown(first), shown(own[depth - 1]),
          rest ? shown(Math.exp(rest[depth - 1])) : "–"];
      }, 129);
    const { mixing } = now.architecture;
    chart.table(id("mixing-numbers").querySelector("table"), ["layer", "λ"], mixing.length,
      (t) => [String(t), shown(mixing[t])], 129);
  }

  function words(now, caveats, exact) {
    const said = summary.profile(now, exact);
    id("said").replaceChildren(...said.map((text) => Object.assign(document.createElement("p"), { textContent: text.replaceAll(" %", "\u00a0%") })));
    id("caveats").textContent = caveats.length ? `Taken for granted: ${caveats.join("; ")}.` : "";
  }

  return { layers, profile, tables, words };
})();
