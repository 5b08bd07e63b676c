// The rollout's last row, R_T ⋯ R_1 with R = (1 − λ)I + λA, as posbias.theory.rollout sweeps it, and its bounds.
//
// A layer is what posbias.reports.explore.kernel exports: its span (`behind`, `always`, `prefix`, or pieces that begin every
// `step` tokens or at `starts`), and heads with weight, logits on diagonal, first column and sink, and either a
// `slope` (−m·d for d ≥ 0, −later·|d| after the query) or a `table` of logits by distance, which `factors` of the
// queries may multiply. Slopes take O(tokens) for each head and layer, in additions only; tables O(tokens²).
// What takes long is a generator that yields every few milliseconds.
const kernel = (() => {
  const FLOOR = 1e-290;
  // added to sums, which denormal numbers would slow down; a million of them stay below FLOOR
  const TINY = 1e-300;
  const LANES = 4;
  // weights of attention that are kept at most, of layers whose logits are tables
  const MOST_KEPT = 5e7;
  let prepared = new WeakMap();
  let kept = 0;

  const terms = (slope, count) => (slope > 0 ? Math.expm1(-slope * count) / Math.expm1(-slope) : count);
  const floored = (value) => (value > FLOOR ? value : 0);

  function spanOf(layer, tokens) {
    const within = (value) => (value === null ? tokens : Math.min(value, tokens));
    let pieces = [0];
    if (layer.starts) pieces = layer.starts.filter((start) => start < tokens);
    else if (layer.step) pieces = Array.from({ length: Math.ceil(tokens / layer.step) }, (_, k) => k * layer.step);
    const behind = Math.min(within(layer.behind), tokens - 1);
    const longest = Math.max(...pieces.map((start, k) => (pieces[k + 1] ?? tokens) - start));
    return { behind, always: within(layer.always), prefix: within(layer.prefix), pieces, longest, whole: behind >= longest - 1 };
  }

  // --- slopes ---

  // By place in a piece, what a query gives each key before it and after it, but for γ^(d − 1), until nothing changes
  // any more; what it gives itself, the sink and the first token is added to `sums`.
  function weigh(head, span, text, sums) {
    const { slope, later, diagonal } = head;
    const first = text ? head.first : 0;
    const sink = head.sink ?? -Infinity;
    const seen = span.prefix > 1 ? -later : -Infinity;
    const largest = Math.max(diagonal, sink, -slope, seen);
    // the first query has none before it
    const start = Math.max(diagonal + first, sink, seen);
    const self = Math.exp(diagonal + first - start);
    const [here, lost, before, after] = [diagonal, sink, -slope, -later].map((logit) => Math.exp(logit - largest));
    const [gamma, lift] = [Math.exp(-slope), Math.exp(first)];
    const reach = terms(slope, span.behind);
    const [there, ahead] = [new Float64Array(span.longest), new Float64Array(span.prefix)];
    let [power, near, place, scale] = [1, 0, 0, 0];
    for (; place < span.longest; place++) {
      const own = place ? here : self;
      let total = own + (place ? lost : Math.exp(sink - start));
      let column = 0;
      const following = place ? after : Math.exp(-later - start);
      if (place < span.prefix - 1) total += following * terms(later, span.prefix - 1 - place);
      if (place > 0) {
        const always = place > span.behind ? Math.min(span.always, place - span.behind) : 1;
        if (always > 0) column = before * power * lift;
        const sinks = always > 1 ? Math.exp(-slope * (place - always)) * terms(slope, always - 1) : 0;
        total += before * ((place > span.behind ? reach : near) + sinks) + column;
        near = 1 + gamma * near;
        power = floored(power * gamma);
      }
      scale = head.weight / total;
      sums.own[place] += scale * own;
      sums.taken[place] += scale * (place ? lost : Math.exp(sink - start));
      sums.column[place] += scale * (place ? column : own);
      there[place] = scale * before;
      if (place < span.prefix) ahead[place] = scale * following;
      if (place > span.prefix && steadyFrom(head, span, place)) break;
    }
    const [own, taken, column] = [here, lost, before * lift].map((one) => scale * one);
    const toFirst = span.whole || span.always > 0;
    const last = Math.min(place, span.longest - 1);
    for (let rest = last + 1; rest < span.longest; rest++) {
      sums.own[rest] += own;
      sums.taken[rest] += taken;
      if (toFirst) sums.column[rest] += column * power;
      power = floored(power * gamma);
    }
    return { there: there.slice(0, last + 1), ahead, gamma, lift, later: Math.exp(-later) };
  }

  // whether later queries weigh as this one does: γ^place times what the first column lifts is lost in 1
  function steadyFrom(head, span, place) {
    if (head.slope * (place - Math.max(span.always, 2) - 1) - Math.max(head.first, 0) > 42) return true;
    return (head.slope === 0 || span.always === 0) && place > span.behind + Math.max(span.always, 1) + 1;
  }

  function* prepareSlopes(layer, span, tokens) {
    const heads = layer.heads.slice().sort((one, other) => one.slope - other.slope);
    const kinds = [];
    for (const text of span.pieces.length > 1 ? [true, false] : [true]) {
      const sums = sumsOf(span.longest);
      const weighed = [];
      for (const head of heads) {
        weighed.push(weigh(head, span, text, sums));
        yield;
      }
      kinds.push({ sums, weighed, lanes: lanes(weighed) });
    }
    const sums = span.pieces.length > 1 ? sumsOf(tokens) : kinds[0].sums;
    if (kinds[1]) {
      span.pieces.forEach((start, k) => {
        const { own, taken } = kinds[k && 1].sums;
        const length = (span.pieces[k + 1] ?? tokens) - start;
        sums.own.set(own.subarray(0, length), start);
        sums.taken.set(taken.subarray(0, length), start);
      });
    }
    return { span, ...sums, kinds, push: pushSlopes };
  }

  const sumsOf = (count) => (
    { own: new Float64Array(count), taken: new Float64Array(count), column: new Float64Array(count) });

  // heads four at a time, for each waits for its own last sum
  function lanes(weighed) {
    return Array.from({ length: Math.ceil(weighed.length / LANES) }, (_, k) => {
      const some = weighed.slice(k * LANES, (k + 1) * LANES);
      while (some.length < LANES) some.push({ there: new Float64Array(1), gamma: 0, lift: 0 });
      const count = Math.max(...some.map((one) => one.there.length));
      const there = some.map((one) => {
        const longer = new Float64Array(count).fill(one.there.at(-1));
        longer.set(one.there);
        return longer;
      });
      return { there, gamma: some.map((one) => one.gamma), lift: some.map((one) => one.lift), last: count - 1 };
    });
  }

  // Σ_{i > j} γ^(i−j−1)·there_i·p_i of four heads added to received_j, for j before `most`
  function earlier(row, received, lane, start, stop, most) {
    const { there: [t0, t1, t2, t3], gamma: [g0, g1, g2, g3], lift, last } = lane;
    const [c0, c1, c2, c3] = [t0[last], t1[last], t2[last], t3[last]];
    let [s0, s1, s2, s3] = [0, 0, 0, 0];
    let j = stop - 1;
    for (const steady = start + last; j > steady; j--) {
      const mass = row[j];
      if (j < most) received[j] += s0 + s1 + (s2 + s3);
      s0 = g0 * s0 + (c0 * mass + TINY);
      s1 = g1 * s1 + (c1 * mass + TINY);
      s2 = g2 * s2 + (c2 * mass + TINY);
      s3 = g3 * s3 + (c3 * mass + TINY);
    }
    for (; j > start; j--) {
      const mass = row[j];
      const place = j - start;
      if (j < most) received[j] += s0 + s1 + (s2 + s3);
      s0 = g0 * s0 + (t0[place] * mass + TINY);
      s1 = g1 * s1 + (t1[place] * mass + TINY);
      s2 = g2 * s2 + (t2[place] * mass + TINY);
      s3 = g3 * s3 + (t3[place] * mass + TINY);
    }
    if (start < most) received[start] += start ? s0 + s1 + s2 + s3 : s0 * lift[0] + s1 * lift[1] + s2 * lift[2] + s3 * lift[3];
  }

  // the same of one head under a window, from blocks as long: what is left of a key's own block, and the next one's beginning
  function windowed(row, received, head, span, start, stop, next) {
    const { there, gamma } = head;
    const { behind } = span;
    const always = start + span.always;
    const last = there.length - 1;
    const given = (j) => there[j - start < last ? j - start : last] * row[j];
    for (let block = Math.ceil((stop - start) / behind) - 1; block >= 0; block--) {
      const low = start + block * behind;
      const high = Math.min(low + behind, stop);
      let [rest, power] = [0, 1];
      for (let j = high - 1; j >= low; j--) {
        const beyond = Math.min(j + behind, stop - 1) - (low + behind);
        let sum = rest;
        if (high === low + behind && beyond >= 0) sum += power * next[beyond];
        if (j >= always) received[j] += j === 0 ? sum * head.lift : sum;
        rest = floored(gamma * rest + given(j));
        power = floored(power * gamma);
      }
      let sum = 0;
      power = 1;
      for (let i = low; i < high; i++) {
        sum += power * given(i);
        next[i - low] = sum;
        power = floored(power * gamma);
      }
    }
  }

  function* pushSlopes({ span, kinds }, row, received) {
    const tokens = row.length;
    const next = span.whole ? null : new Float64Array(span.behind);
    for (let k = 0; k < span.pieces.length; k++) {
      const [start, stop] = [span.pieces[k], span.pieces[k + 1] ?? tokens];
      const { lanes, weighed } = kinds[k && 1];
      for (const lane of span.whole || span.always > 0 ? lanes : []) {
        earlier(row, received, lane, start, stop, span.whole ? stop : start + span.always);
        if (stop - start > 1e5) yield;
      }
      for (const head of span.whole || span.behind === 0 ? [] : weighed) {
        windowed(row, received, head, span, start, stop, next);
        if (stop - start > 1e5) yield;
      }
    }
    for (const head of kinds[0].weighed) {
      let sum = 0;
      for (let j = 1; j < span.prefix; j++) {
        sum = floored(head.later * sum + head.ahead[j - 1] * row[j - 1]);
        received[j] += sum;
      }
    }
    yield;
  }

  // --- tables of logits by distance: rows of attention, over all heads ---

  // runs of keys that a query sees, itself and the first token left out
  function keysOf({ pieces, behind, always, prefix }, query) {
    const low = pieces.length > 1 ? pieces.findLast((start) => start <= query) : Math.max(query - behind, 0);
    return [[1, Math.min(always, low)], [Math.max(low, 1), query], [query + 1, Math.max(query + 1, prefix)], low];
  }

  function* prepareTables(layer, span, tokens) {
    const sums = sumsOf(tokens);
    const rows = Array.from(sums.own, (_, query) => new Float64Array(Math.max(query + 1, span.prefix)));
    for (const head of layer.heads) {
      // logits by distance, those of later keys first, and their exponentials less the most of them
      const ahead = Math.max(span.prefix - 1, 0);
      const logits = [...head.after.slice(0, ahead).reverse(), ...head.table.slice(0, tokens)];
      const values = new Float64Array(logits.length);
      let [factor, most] = [null, 0];
      for (let query = 0; query < tokens; query++) {
        const now = head.factors ? head.factors[query] : 1;
        if (now !== factor) {
          factor = now;
          most = logits.reduce((largest, one) => Math.max(largest, factor * one), -Infinity);
          logits.forEach((one, k) => { values[k] = Math.exp(factor * one - most); });
        }
        const [always, before, after, low] = keysOf(span, query);
        let others = 0;
        for (const [from, to] of [always, before, after]) {
          for (let key = from; key < to; key++) others += values[ahead + query - key];
        }
        const sink = head.sink === null ? -Infinity : head.sink + (1 - factor) * (head.constant ?? 0);
        const itself = factor * (head.table[0] + head.diagonal + (query ? 0 : head.first));
        const seen = query > 0 && (low === 0 || span.always > 0);
        const column = seen ? factor * (head.table[query] + head.first) : -Infinity;
        const largest = Math.max(itself, column, sink, others > 0 ? most : -Infinity);
        const [own, first, lost, rest] = [itself, column, sink, most].map((logit) => Math.exp(logit - largest));
        const scale = head.weight / (own + first + lost + (others > 0 ? rest * others : 0));
        sums.own[query] += scale * own;
        sums.taken[query] += scale * lost;
        sums.column[query] += scale * (query ? first : own);
        if (query) rows[query][0] += scale * first;
        for (const [from, to] of [always, before, after]) {
          for (let key = from; key < to; key++) rows[query][key] += scale * rest * values[ahead + query - key];
        }
        if (query % 256 === 0) yield;
      }
    }
    return { span, ...sums, rows, push: pushTables };
  }

  function* pushTables({ rows }, row, received) {
    for (let query = 0; query < row.length; query++) {
      const [mass, given] = [row[query], rows[query]];
      if (mass > 0) for (let key = 0; key < given.length; key++) received[key] += mass * given[key];
      if (query % 256 === 0) yield;
    }
  }

  // --- what the page calls ---

  const swept = (layer) => layer.heads.every((head) => head.table === null);

  function* prepare(layer, tokens) {
    const known = prepared.get(layer);
    if (known && known.tokens === tokens) return known.value;
    const size = swept(layer) ? 0 : (tokens * tokens) / 2;
    if (kept + size > MOST_KEPT) [prepared, kept] = [new WeakMap(), 0];
    kept += size;
    const value = yield* (swept(layer) ? prepareSlopes : prepareTables)(layer, spanOf(layer, tokens), tokens);
    prepared.set(layer, { tokens, value });
    return value;
  }

  function mixed(row, received, { own, taken }, mixing, out) {
    let lost = 0;
    for (let j = 0; j < row.length; j++) {
      out[j] = floored((1 - mixing) * row[j] + mixing * (received[j] + own[j] * row[j]));
      lost += taken[j] * row[j];
    }
    return mixing * lost;
  }

  // the influence of every position on the last token through the `depth` lowest layers, and what sinks took
  function* sweep({ layers, mixing }, tokens, depth) {
    let [row, out, received] = [0, 0, 0].map(() => new Float64Array(tokens));
    row[tokens - 1] = 1;
    let lost = 0;
    for (let t = depth - 1; t >= 0; t--) {
      const state = yield* prepare(layers[t % layers.length], tokens);
      received.fill(0);
      yield* state.push(state, row, received);
      lost += mixed(row, received, state, mixing[t], out);
      [row, out] = [out, row];
    }
    return { mass: row, lost };
  }

  // nanoseconds that a sweep takes, about
  function price({ layers }, tokens, depth) {
    const each = layers.map((layer) => {
      const heads = layer.heads.length;
      if (!swept(layer)) return tokens * tokens * (depth / 2 + heads);
      return depth * tokens * (spanOf(layer, tokens).whole ? 4 + 2 * heads : 12 * heads);
    });
    return each.reduce((sum, one) => sum + one, 0) / layers.length;
  }

  function finish(steps) {
    let step = steps.next();
    while (!step.done) step = steps.next();
    return step.value;
  }

  const influence = (...given) => finish(sweep(...given));

  // whether a query sees later keys
  const ahead = ({ layers }) => layers.some(({ prefix }) => prefix === null || prefix > 1);

  // Bounds after each layer. `rest`: ln of the most that all positions but the first hold, Σ ln(1 − ε_t·λ_t) with ε_t
  // the least weight of the first token in a layer; null where it bounds nothing. `own`: what the last token keeps of
  // itself at least, Π(1 − (1 − ε_t)·λ_t) with ε_t its weight for itself.
  function bounds(architecture, tokens, depth) {
    const known = new Map();
    const { layers, mixing } = architecture;
    const floors = Array.from({ length: depth }, (_, t) => {
      const layer = layers[t % layers.length];
      if (!known.has(layer)) {
        const { column, own } = finish(prepare(layer, tokens));
        known.set(layer, [column.reduce((least, one) => Math.min(least, one), 1), own[tokens - 1]]);
      }
      return known.get(layer);
    });
    let [sum, product] = [0, 1];
    const rest = floors.map(([first], t) => (sum += Math.log1p(-first * mixing[t])));
    const own = floors.map(([, self], t) => (product *= 1 - (1 - self) * mixing[t]));
    return { rest: ahead(architecture) || sum === 0 ? null : rest, own };
  }

  return { ahead, bounds, finish, influence, price, swept, sweep };
})();
