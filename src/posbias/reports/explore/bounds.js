// Theorems as bounds on what the page shows, from what the kernel has ready of each layer. Each holds for the numbers
// of the layers as they are, so ε is the least weight that a layer has there, and not one for all.
const bounds = (() => {
  const last = (values) => values[values.length - 1];

  // a number of each layer, computed once for each kind of layer
  function byLayer(architecture, tokens, depth, number) {
    const known = new Map();
    return Array.from({ length: depth }, (_, t) => {
      const layer = architecture.layers[t % architecture.layers.length];
      if (!known.has(layer)) known.set(layer, number(layer, kernel.ready(layer, tokens)));
      return known.get(layer);
    });
  }

  const least = (values, from, at) => {
    let most = 1;
    for (let query = from; query < values.length; query++) most = Math.min(most, at(query));
    return Math.max(most, 0);
  };

  // the least weight of the first token
  const leastFirst = (layer, { column }) => least(column, 0, (query) => column[query]);

  // the least weight that a query after the first gives to all before it
  const leastBefore = (layer, { own, taken }) => least(own, 1, (query) => 1 - own[query] - taken[query]);

  // ln of the most that all positions but the first hold together after each layer: Σ ln(1 − ε_t·λ_t)
  function collapse(architecture, tokens, depth) {
    let sum = 0;
    return byLayer(architecture, tokens, depth, leastFirst)
      .map((floor, t) => (sum += Math.log1p(-floor * architecture.mixing[t])));
  }

  // the same where no layer shows the first token to all: each moves what a token has to an earlier one with at
  // least ε_t·λ_t, and tokens − 1 such moves suffice; the chance that fewer succeed
  function moves(architecture, tokens, depth) {
    if (depth < tokens - 1) return null;
    const moved = new Float64Array(tokens - 1);
    moved[0] = 1;
    return byLayer(architecture, tokens, depth, leastBefore).map((floor, t) => {
      const chance = floor * architecture.mixing[t];
      for (let k = tokens - 2; k > 0; k--) moved[k] = (1 - chance) * moved[k] + chance * moved[k - 1];
      moved[0] *= 1 - chance;
      return Math.log(Math.min(moved.reduce((sum, value) => sum + value, 0), 1));
    });
  }

  // what the last token keeps of itself, at least: Π(1 − (1 − ε_t)·λ_t), with ε_t its weight for itself
  function kept(architecture, tokens, depth) {
    let product = 1;
    return byLayer(architecture, tokens, depth, (layer, { own }) => own[tokens - 1])
      .map((own, t) => (product *= 1 - (1 - own) * architecture.mixing[t]));
  }

  // the least and the greatest content logit of a head
  const contents = (head) => [Math.min(0, head.diagonal, head.first), Math.max(0, head.diagonal, head.first)];

  // ln Σ γ^d over the distances of a text
  const total = (slope, tokens) => Math.log(slope > 0 ? Math.expm1(-slope * tokens) / Math.expm1(-slope) : tokens);

  // ln of the most and of the least that attention alone gives each position, where logits fall with the distance:
  // every walk over a distance d weighs e^(−m·d), up to constants, and C(depth − 1 + d, d) walks lead there
  function envelope(architecture, tokens, depth) {
    const { layers } = architecture;
    const heads = layers.flatMap((layer) => layer.heads);
    const falls = heads.every((head) => head.slope !== null && head.table === null);
    const alone = architecture.mixing.slice(0, depth).every((value) => value === 1);
    const causal = layers.every((layer) => layer.prefix !== null && layer.prefix <= 1);
    const even = layers.every((layer) => Math.abs(layer.heads.reduce((sum, head) => sum + head.weight, 0) - 1) < 1e-9);
    if (!falls || !alone || !causal || !even) return null;
    const wide = layers.every((layer) => (layer.behind === null || layer.behind >= tokens - 1)
      && !(layer.step < tokens && layer.step !== null) && !layer.starts) && heads.every((head) => head.sink === null);
    const slopes = heads.map((head) => head.slope);
    const spreads = heads.map(contents).map(([low, high]) => high - low);
    const most = Math.max(...spreads);
    const least = Math.min(...heads.map((head, k) => -spreads[k] - total(head.slope, tokens)));
    const [slow, fast] = [Math.min(...slopes), Math.max(...slopes)];
    const [upper, lower] = [new Float64Array(tokens), wide ? new Float64Array(tokens) : null];
    let walks = 0;
    for (let distance = 0; distance < tokens; distance++) {
      if (distance > 0) walks += Math.log1p((depth - 1) / distance);
      upper[tokens - 1 - distance] = walks + depth * most - slow * distance;
      if (lower) lower[tokens - 1 - distance] = walks + depth * least - fast * distance;
    }
    return { upper, lower };
  }

  // what bounds the layers of the page: all positions but the first (`rest`, and by which theorem), and the last token
  function ofLayers(architecture, tokens, depth) {
    const later = architecture.layers.some((layer) => layer.prefix === null || layer.prefix > 1);
    const all = later ? null : collapse(architecture, tokens, depth);
    const seen = all && last(all) < 0;
    const rest = later ? null : seen ? all : moves(architecture, tokens, depth);
    return { rest, later, seen, kept: kept(architecture, tokens, depth) };
  }

  return { collapse, envelope, kept, moves, ofLayers };
})();
