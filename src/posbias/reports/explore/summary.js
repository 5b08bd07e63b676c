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
    return [
      (exact ? `Verdict: ${verdict}. ` : `No verdict on a model, since part of the encoding is left out or chosen; as computed: ${verdict}. `) +
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
  function bounded({ rest, later, seen, kept }, tokens) {
    const most = rest && nearly(Math.exp(rest.at(-1)));
    const own = `The last token keeps at least ${small(kept.at(-1))} of itself: the product of 1 − (1 − ε)·λ, with ε ` +
      "its weight for itself (Herasimchyk et al. 2026, Theorem 5.4 (i)).";
    if (later) return `The bound on all but the first token needs a mask under which no query sees a later key. ${own}`;
    if (!rest) {
      return "In every layer some query does not see the first token: the bound on all but it begins after " +
        `${count(tokens - 1, "layer")}, one for each token before the last. ${own}`;
    }
    return `All positions but the first together hold at most ${most}: ` + (seen
      ? "the product of 1 − ε·λ over layers, with ε the least weight of the first token in a layer (Wu et al. 2025, " +
        "Theorem 4.1, with λ)."
      : "in every layer a token moves what it has to an earlier one with at least ε·λ, and as many moves as there are " +
        "tokens before the last one suffice (in place of Herasimchyk et al. 2026, Theorem 5.4 (ii), under a window).") +
      ` ${own}`;
  }

  const envelope = () => "Dotted: bounds on attention alone where logits fall with the distance. As many walks lead to a " +
    "position as layers allow, each worth e^(−m·distance) up to constants (Wu et al. 2025, Theorem 4.5, with constants " +
    "that hold).";

  return { bounded, count, envelope, profile, shape, shares };
})();
