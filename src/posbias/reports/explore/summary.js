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

  // the share of the first tenth of positions, of those between, and of the last tenth
  function tenths(mass) {
    const end = Math.max(1, Math.round(mass.length / 10));
    const sum = (from, to) => mass.subarray(from, to).reduce((total, value) => total + value, 0);
    return [sum(0, end), sum(end, mass.length - end), sum(mass.length - end, mass.length)];
  }

  function profile(mass, lost, depth) {
    const [first, middle, last] = tenths(mass);
    const end = Math.max(1, Math.round(mass.length / 10)) / mass.length;
    return [
      `Through ${count(depth, "layer")} the last of ${count(mass.length, "token")} is made of the first tenth of the ` +
        `text to ${percent(first)}, of the last tenth to ${percent(last)}, and of what lies between to ` +
        `${percent(middle)}. An even spread would be ${percent(end)}, ${percent(end)} and ${percent(1 - 2 * end)}.`,
      `The first token alone has ${percent(mass[0])}, the last one ${percent(mass[mass.length - 1])}.` +
        (lost > 0 ? ` Learned sinks took ${percent(lost)}.` : ""),
    ];
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

  return { bounded, count, envelope, profile, tenths };
})();
