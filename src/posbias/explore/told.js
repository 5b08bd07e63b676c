// What is seen, in words.
const told = (() => {
  const percent = (share) => {
    if (share > 0 && share < 0.0005) return "less than 0.1 %";
    return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
  };
  // a share that may be next to all
  const nearly = (share) => (share > 0.995 && share < 1 ? `${(100 * share).toPrecision(5)} %` : percent(share));
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

  // why the collapse bound says nothing here, or nothing
  function noBound(layers, bound) {
    if (layers.some((layer) => layer.prefix === null || layer.prefix > 1)) {
      return "The bound on all but the first token needs a mask under which no query sees a later key.";
    }
    return bound.at(-1) === 0
      ? "The bound on all but the first token says nothing here: in every layer some query does not see the first token."
      : null;
  }

  const bound = (least) => `All positions but the first together hold at most ${nearly(Math.exp(least))}: the product of ` +
    "1 − ε·λ over layers, with ε the least weight of the first token in a layer (Wu et al. 2025, Theorem 4.1, with λ).";

  return { bound, count, noBound, percent, profile, tenths };
})();
