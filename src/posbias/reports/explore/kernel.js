// The rollout's last row, R_T ⋯ R_1 with R = (1 − λ)I + λA, as posbias.theory.rollout sweeps it.
//
// A layer is what posbias.reports.explore.kernel exports: its span (`behind`, `always`, `prefix`, or pieces that begin every
// `step` tokens or at `starts`), and heads with weight, logits on diagonal, first column and sink, and either a
// `slope` (−m·d for d ≥ 0, −later·|d| after the query) or a `table` of logits by distance, which `factors` of the
// queries may multiply. Slopes take O(tokens) for each head and layer, in additions only; tables O(tokens²), or, where
// a picture is enough (`quick`), Fourier transforms.
// What takes long is a generator that yields every few milliseconds.
const kernel = (() => {
  const FLOOR = 1e-290;
  // added to sums, which denormal numbers would slow down; a million of them stay below FLOOR
  const TINY = 1e-300;
  // the relative error that a transform may make
  const ERROR = 2e-11;
  const LANES = 4;
  const prepared = new WeakMap();
  const rooms = new Map();

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
      if (span.whole || span.always > 0) {
        for (const lane of lanes) {
          earlier(row, received, lane, start, stop, span.whole ? stop : start + span.always);
          if (stop - start > 2e5) yield;
        }
      }
      if (span.whole || span.behind === 0) continue;
      for (const head of weighed) {
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

  // --- tables of logits by distance ---

  function keysOf(span) {
    let piece = 0;
    return (query) => {
      while (span.pieces[piece + 1] <= query) piece++;
      const low = span.pieces.length > 1 ? span.pieces[piece] : Math.max(query - span.behind, 0);
      return [low, Math.max(query, span.prefix - 1), Math.min(span.always, low)];
    };
  }

  // exponentials of a head's logits by distance, times the factor of a query and less the `most` of them
  function exponentials(head, span, tokens) {
    const [table, later] = [head.table.slice(0, tokens), head.after.slice(0, Math.max(span.prefix - 1, 0))];
    const upTo = (some, from) => some.map((_, k) => (from = k ? from + some[k] : from));
    let last = {};
    return (query) => {
      const factor = head.factors ? head.factors[query] : 1;
      if (factor === last.factor) return last;
      const most = [...table, ...later].reduce((largest, one) => Math.max(largest, factor * one), -Infinity);
      const [values, after] = [table, later].map((some) => Float64Array.from(some, (logit) => Math.exp(factor * logit - most)));
      // Σ over the distances 1 … d before a query, and after it
      last = { factor, most, values, after, before: upTo(values, 0), beyond: upTo(after, after[0]) };
      return last;
    };
  }

  function* prepareTables(layer, span, tokens) {
    const sums = sumsOf(tokens);
    const heads = [];
    // what a query gives each key, over all heads, where each query has exponentials of its own
    const rows = layer.heads[0].factors && Array.from(sums.own, (_, query) => new Float64Array(Math.max(query + 1, span.prefix)));
    for (const head of layer.heads) {
      const of = exponentials(head, span, tokens);
      const keys = keysOf(span);
      const there = new Float64Array(tokens);
      for (let query = 0; query < tokens; query++) {
        const { factor, most, values, after, before, beyond } = of(query);
        const [low, high, always] = keys(query);
        const sink = head.sink === null ? -Infinity : head.sink + (1 - factor) * (head.constant ?? 0);
        const itself = factor * (head.table[0] + head.diagonal + (query ? 0 : head.first));
        const column = query > 0 && (low === 0 || always > 0) ? factor * (head.table[query] + head.first) : -Infinity;
        let others = before[Math.max(query - Math.max(low, 1), 0)];
        for (let key = 1; key < always; key++) others += values[query - key];
        if (high > query) others += beyond[high - query - 1];
        const largest = Math.max(itself, column, sink, others > 0 ? most : -Infinity);
        const [own, first, lost, rest] = [itself, column, sink, most].map((logit) => Math.exp(logit - largest));
        const scale = head.weight / (own + first + lost + (others > 0 ? rest * others : 0));
        there[query] = scale * rest;
        sums.own[query] += scale * own;
        sums.taken[query] += scale * lost;
        sums.column[query] += scale * (query ? first : own);
        if (rows) give({ values, after }, query, [low, high, always], there[query], rows[query]);
        if (query % 256 === 0) yield;
      }
      heads.push({ ...of(0), there, spectrum: null });
    }
    return { span, ...sums, heads, rows, push: pushTables };
  }

  function* pushTables({ span, heads, rows, column }, row, received, quick) {
    let first = 0;
    for (let i = 1; i < row.length; i++) first += row[i] * column[i];
    if (!rows && transformed(span) && (transforms(heads, span, row, received) || quick)) {
      received[0] = first;
      return;
    }
    received.fill(0);
    received[0] = first;
    const keys = keysOf(span);
    for (let begin = 0; begin < row.length; begin += 256) {
      const end = Math.min(begin + 256, row.length);
      for (let i = begin; i < end; i++) {
        if (rows) for (let j = 1; j < rows[i].length; j++) received[j] += row[i] * rows[i][j];
        else if (row[i] > 0) for (const head of heads) give(head, i, keys(i), row[i] * head.there[i], received);
      }
      yield;
    }
  }

  function give({ values, after }, query, [low, high, always], mass, received) {
    const begin = Math.max(low, 1);
    for (let j = begin; j < query; j++) received[j] += mass * values[query - j];
    for (let j = 1; j < always; j++) received[j] += mass * values[query - j];
    for (let j = query + 1; j <= high; j++) received[j] += mass * after[j - query - 1];
  }

  const transformed = (span) => span.pieces.length === 1 && span.always === 0 && span.prefix < 2;

  // The same by transforms, of half the length since numbers turned by a right angle at the end keep what goes around
  // apart; whether every number is surely within `ERROR` (an error is a share of the largest: Higham 2002, Theorem 24.2).
  function transforms(heads, span, row, received) {
    const tokens = row.length;
    const size = 2 ** Math.ceil(Math.log2(tokens));
    const { turn: [cos, sin], re, im, sumRe, sumIm } = roomFor(size);
    sumRe.fill(0);
    sumIm.fill(0);
    let [error, least] = [0, Infinity];
    for (const head of heads) {
      const { values, there } = head;
      const reach = Math.min(span.behind, tokens - 1);
      if (!head.spectrum) {
        const parts = [new Float64Array(size), new Float64Array(size)];
        let squares = 0;
        for (let d = 1; d <= reach; d++) {
          squares += values[d] ** 2;
          parts[0][d] = (values[d] / size) * cos[d];
          parts[1][d] = (values[d] / size) * sin[d];
        }
        forward(...parts);
        head.spectrum = { parts, norm: Math.sqrt(squares) };
      }
      re.fill(0);
      im.fill(0);
      let squares = 0;
      for (let k = 0; k < tokens; k++) {
        const given = row[tokens - 1 - k] * there[tokens - 1 - k];
        squares += given * given;
        re[k] = given * cos[k];
        im[k] = given * sin[k];
      }
      error += 8e-16 * Math.log2(size) * Math.sqrt(squares) * head.spectrum.norm;
      forward(re, im);
      const [a, b] = head.spectrum.parts;
      for (let k = 0; k < size; k++) {
        sumRe[k] += re[k] * a[k] - im[k] * b[k];
        sumIm[k] += im[k] * a[k] + re[k] * b[k];
      }
    }
    backward(sumRe, sumIm);
    for (let k = 1; k < tokens - 1; k++) {
      const sum = sumRe[k] * cos[k] + sumIm[k] * sin[k];
      if (sum < least) least = sum;
      received[tokens - 1 - k] = sum > 0 ? sum : 0;
    }
    return error < ERROR * least;
  }

  // rotations and room for transforms of a size
  function roomFor(size) {
    if (!rooms.has(size)) {
      const circle = (count, share) => [Math.cos, Math.sin].map((wave) => (
        Float64Array.from({ length: count }, (_, k) => wave((2 * Math.PI * share * k) / size))));
      const [re, im, sumRe, sumIm] = [0, 0, 0, 0].map(() => new Float64Array(size));
      rooms.set(size, { circle: circle(size / 2, 1), turn: circle(size, 0.25), re, im, sumRe, sumIm });
    }
    return rooms.get(size);
  }

  // in place, into bit-reversed order
  function forward(re, im) {
    const size = re.length;
    const [cos, sin] = roomFor(size).circle;
    for (let half = size / 2, stride = 1; half >= 1; half /= 2, stride *= 2) {
      for (let base = 0; base < size; base += 2 * half) {
        for (let i = base, t = 0; i < base + half; i++, t += stride) {
          const j = i + half;
          const x = re[i] - re[j];
          const y = im[i] - im[j];
          re[i] += re[j];
          im[i] += im[j];
          re[j] = x * cos[t] + y * sin[t];
          im[j] = y * cos[t] - x * sin[t];
        }
      }
    }
  }

  // and from it, without the factor 1/size
  function backward(re, im) {
    const size = re.length;
    const [cos, sin] = roomFor(size).circle;
    for (let half = 1, stride = size / 2; half < size; half *= 2, stride /= 2) {
      for (let base = 0; base < size; base += 2 * half) {
        for (let i = base, t = 0; i < base + half; i++, t += stride) {
          const j = i + half;
          const x = re[j] * cos[t] - im[j] * sin[t];
          const y = re[j] * sin[t] + im[j] * cos[t];
          re[j] = re[i] - x;
          im[j] = im[i] - y;
          re[i] += x;
          im[i] += y;
        }
      }
    }
  }

  // --- what the page calls ---

  const swept = (layer) => layer.heads.every((head) => head.table === null);

  function* prepare(layer, tokens) {
    const known = prepared.get(layer);
    if (known && known.tokens === tokens) return known.value;
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
  function* sweep({ layers, mixing }, tokens, depth, quick = false) {
    let [row, out, received] = [0, 0, 0].map(() => new Float64Array(tokens));
    row[tokens - 1] = 1;
    let lost = 0;
    for (let t = depth - 1; t >= 0; t--) {
      const state = yield* prepare(layers[t % layers.length], tokens);
      received.fill(0);
      yield* state.push(state, row, received, quick);
      lost += mixed(row, received, state, mixing[t], out);
      [row, out] = [out, row];
    }
    return { mass: row, lost };
  }

  // nanoseconds that a sweep takes, about
  function price({ layers }, tokens, depth, quick) {
    const each = layers.map((layer) => {
      const span = spanOf(layer, tokens);
      const heads = layer.heads.length;
      if (swept(layer)) return tokens * (span.whole ? 4 + 2 * heads : 12 * heads);
      if (quick && !layer.heads[0].factors && transformed(span)) return 40 * tokens * (heads + 1);
      return (heads * tokens * Math.min(span.behind + span.prefix, span.longest)) / 2;
    });
    return (each.reduce((sum, one) => sum + one, 0) / layers.length) * depth;
  }

  function finish(steps) {
    let step = steps.next();
    while (!step.done) step = steps.next();
    return step.value;
  }

  const influence = (...given) => finish(sweep(...given));
  const ready = (layer, tokens) => finish(prepare(layer, tokens));

  return { finish, influence, price, ready, sweep };
})();
