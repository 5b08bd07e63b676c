"use strict";
// The rollout's last row, R_T ⋯ R_1 with R = (1 − λ)I + λA, in additions only, as posbias.theory.rollout sweeps it.
//
// A layer is what posbias.reports.explore.kernel exports: its span (`behind`, `always`, `prefix`, or pieces that begin every
// `step` tokens or at `starts`), and heads with weight, logits on diagonal, first column and sink, and either a
// `slope` (−m·d for d ≥ 0, −later·|d| after the query) or a `table` of logits by distance. `factors` multiply the
// logits of a query. Slopes take O(tokens) for each head and layer, anything else O(tokens²) once for each kind of
// layer and then for each layer.
const kernel = (() => {
  const FLOOR = 1e-290;
  const RANGE = 600;
  const prepared = new WeakMap();

  const terms = (slope, count) => (slope > 0 ? Math.expm1(-slope * count) / Math.expm1(-slope) : count);
  const floored = (value) => (value > FLOOR ? value : 0);

  function starts(layer, tokens) {
    if (layer.starts) return layer.starts.filter((start) => start < tokens);
    if (!layer.step) return [0];
    return Array.from({ length: Math.ceil(tokens / layer.step) }, (_, piece) => piece * layer.step);
  }

  function spanOf(layer, tokens) {
    const within = (value) => (value === null ? tokens : Math.min(value, tokens));
    return { behind: Math.min(within(layer.behind), tokens - 1), always: within(layer.always), prefix: within(layer.prefix) };
  }

  // what query `place` of a piece gives one key before it, one after it, itself and the sink, but for γ^(d − 1)
  function shares(head, span, place, isText) {
    const { slope, later, diagonal, sink } = head;
    const first = isText ? head.first : 0;
    const after = place < span.prefix - 1;
    const self = place === 0 ? diagonal + first : diagonal;
    const present = sink === null ? -Infinity : sink;
    const largest = Math.max(self, present, place > 0 ? -slope : -Infinity, after ? -later : -Infinity);
    const here = Math.exp(self - largest);
    const taken = Math.exp(present - largest);
    const there = place > 0 ? Math.exp(-slope - largest) : 0;
    const ahead = after ? Math.exp(-later - largest) : 0;
    let total = here + taken + ahead * (after ? terms(later, span.prefix - 1 - place) : 0);
    if (place > 0) {
      const column = Math.exp(first - slope * (place - 1));
      if (place <= span.behind) {
        total += there * (terms(slope, place - 1) + column);
      } else {
        const always = Math.min(span.always, place - span.behind);
        const sinks = always > 1 ? Math.exp(-slope * (place - always)) * terms(slope, always - 1) : 0;
        total += there * (terms(slope, span.behind) + (always > 0 ? column : 0) + sinks);
      }
    }
    const scale = head.weight / total;
    return [here * scale, taken * scale, there * scale, ahead * scale];
  }

  function prepareSlopes(layer, tokens) {
    const span = spanOf(layer, tokens);
    const pieces = starts(layer, tokens);
    const own = new Float64Array(tokens);
    const taken = new Float64Array(tokens);
    const heads = layer.heads.map((head) => {
      const there = new Float64Array(tokens);
      const ahead = new Float64Array(span.prefix);
      pieces.forEach((start, number) => {
        const stop = number + 1 < pieces.length ? pieces[number + 1] : tokens;
        // far from the start of a text nothing changes any more
        let before = null;
        for (let i = start; i < stop; i++) {
          const steady = before !== null && i - start > span.prefix && steadyFrom(head, span, i - start);
          const share = steady ? before : shares(head, span, i - start, start === 0);
          own[i] += share[0];
          taken[i] += share[1];
          there[i] = share[2];
          if (i < span.prefix) ahead[i] = share[3];
          before = share;
        }
      });
      return { there, ahead, gamma: Math.exp(-head.slope), later: Math.exp(-head.later), lift: Math.exp(head.first) };
    });
    return { span, pieces, own, taken, heads, push: pushSlopes };
  }

  // whether the weights of a query are those of the one before: γ^place times what the first column lifts is lost in 1
  function steadyFrom(head, span, place) {
    const away = head.slope * (place - Math.max(span.always, 2) - 1) - Math.max(head.first, 0);
    if (away > 42) return true;
    return head.slope === 0 && place > span.behind + Math.max(span.always, 1) + 1;
  }

  // Σ_{i > j} γ^(i−j−1)·there_i·p_i added to received_j, over the keys of `span` before each query
  function earlier(row, received, head, span, start, stop) {
    const { there, gamma } = head;
    const lift = start === 0 ? head.lift : 1;
    const { behind } = span;
    const always = start + span.always;
    const whole = behind >= stop - start - 1;
    if (whole || span.always > 0) {
      let sum = 0;
      const most = whole ? stop : always;
      for (let j = stop - 1; j >= start; j--) {
        if (j < most) received[j] += j === 0 ? sum * lift : sum;
        sum = gamma * sum + there[j] * row[j];
        if (sum < FLOOR) sum = 0;
      }
    }
    if (whole || behind === 0) return;
    // blocks as long as the window: what is left of a key's own block, and the beginning of the next one
    const next = new Float64Array(behind);
    const blocks = Math.ceil((stop - start) / behind);
    for (let block = blocks - 1; block >= 0; block--) {
      const low = start + block * behind;
      const high = Math.min(low + behind, stop);
      let rest = 0;
      let power = 1;
      for (let j = high - 1; j >= low; j--) {
        const beyond = Math.min(j + behind, stop - 1) - (low + behind);
        let sum = rest;
        if (high === low + behind && beyond >= 0) sum += power * next[beyond];
        if (j >= always) received[j] += j === 0 ? sum * lift : sum;
        rest = floored(gamma * rest + there[j] * row[j]);
        power *= gamma;
        if (power < FLOOR) power = 0;
      }
      let sum = 0;
      power = 1;
      for (let i = low; i < high; i++) {
        sum += power * there[i] * row[i];
        next[i - low] = sum;
        power *= gamma;
        if (power < FLOOR) power = 0;
      }
    }
  }

  function pushSlopes(ready, mixing, row) {
    const { span, pieces, own, taken, heads } = ready;
    const tokens = row.length;
    const received = new Float64Array(tokens);
    for (const head of heads) {
      pieces.forEach((start, number) => {
        earlier(row, received, head, span, start, number + 1 < pieces.length ? pieces[number + 1] : tokens);
      });
      let sum = 0;
      for (let j = 1; j < span.prefix; j++) {
        sum = floored(head.later * sum + head.ahead[j - 1] * row[j - 1]);
        received[j] += sum;
      }
    }
    return mixed(row, received, own, taken, mixing);
  }

  function mixed(row, received, own, taken, mixing) {
    const out = new Float64Array(row.length);
    const keep = 1 - mixing;
    let lost = 0;
    for (let j = 0; j < row.length; j++) {
      out[j] = floored(keep * row[j] + mixing * (received[j] + own[j] * row[j]));
      lost += taken[j] * row[j];
    }
    return [out, mixing * lost];
  }

  // --- any logits by distance: the kernel itself, heads averaged, once for each kind of layer ---

  function logitsAt(head, distance) {
    if (head.table === null) return -(distance < 0 ? -head.later : head.slope) * distance;
    return distance < 0 ? head.after[-distance - 1] : head.table[distance];
  }

  function seenBy(layer, tokens) {
    const span = spanOf(layer, tokens);
    const pieces = starts(layer, tokens);
    let piece = 0;
    return (query) => {
      while (piece + 1 < pieces.length && pieces[piece + 1] <= query) piece++;
      while (pieces[piece] > query) piece--;
      const low = pieces.length > 1 ? pieces[piece] : Math.max(query - span.behind, 0);
      return [low, Math.max(query, span.prefix - 1), Math.min(span.always, low)];
    };
  }

  function prepareTables(layer, tokens) {
    const dense = new Float64Array(tokens * tokens);
    const taken = new Float64Array(tokens);
    const keys = seenBy(layer, tokens);
    const bounds = Array.from({ length: tokens }, (_, query) => keys(query));
    const far = bounds.reduce((most, [low, , always], query) => Math.max(most, always ? query : query - low), 0);
    const ahead = bounds.reduce((most, [, high], query) => Math.max(most, high - query), 0);
    layer.heads.forEach((head, number) => {
      const logits = Float64Array.from({ length: far + ahead + 1 }, (_, k) => logitsAt(head, k - ahead));
      const factors = layer.factors && layer.factors[number];
      const row = new Float64Array(tokens);
      const exponentials = factors ? null : whole(logits, head);
      bounds.forEach(([low, high, always], query) => {
        const factor = factors ? factors[query] : 1;
        const sink = head.sink === null ? -Infinity : head.sink + (1 - factor) * head.constant;
        const at = (key) => {
          let logit = logits[query - key + ahead];
          if (key === query) logit += head.diagonal;
          if (key === 0) logit += head.first;
          return factor * logit;
        };
        let largest = exponentials ? exponentials.largest : sink;
        const each = (visit) => {
          for (let key = 0; key < always; key++) visit(key);
          for (let key = low; key <= high; key++) visit(key);
        };
        if (!exponentials) each((key) => { largest = Math.max(largest, at(key)); });
        let total = Math.exp(sink - largest);
        const lost = total;
        each((key) => {
          const plain = exponentials !== null && key !== 0 && key !== query;
          row[key] = plain ? exponentials.values[query - key + ahead] : Math.exp(at(key) - largest);
          total += row[key];
        });
        const scale = head.weight / total;
        each((key) => { dense[query * tokens + key] += scale * row[key]; });
        taken[query] += scale * lost;
      });
    });
    return { dense, taken, bounds, push: pushTables };
  }

  // exp of all logits of a head, where one number can be taken off all of them
  function whole(logits, head) {
    const extra = Math.abs(head.diagonal) + Math.abs(head.first);
    let [low, high] = [Infinity, -Infinity];
    for (const logit of logits) {
      low = Math.min(low, logit);
      high = Math.max(high, logit);
    }
    const sink = head.sink === null ? high : head.sink;
    const largest = Math.max(high, sink);
    if (largest - Math.min(low, sink) + extra > RANGE) return null;
    return { largest, values: logits.map((logit) => Math.exp(logit - largest)) };
  }

  function pushTables(ready, mixing, row) {
    const tokens = row.length;
    const received = new Float64Array(tokens);
    for (let i = 0; i < tokens; i++) {
      const mass = row[i];
      if (mass === 0) continue;
      const [low, high, always] = ready.bounds[i];
      const place = i * tokens;
      for (let j = 0; j < always; j++) received[j] += mass * ready.dense[place + j];
      for (let j = low; j <= high; j++) received[j] += mass * ready.dense[place + j];
    }
    return mixed(row, received, new Float64Array(tokens), ready.taken, mixing);
  }

  // --- what the page calls ---

  function ready(layer, tokens) {
    const known = prepared.get(layer);
    if (known && known.tokens === tokens) return known.value;
    const sweeps = !layer.factors && layer.heads.every((head) => head.table === null);
    const value = sweeps ? prepareSlopes(layer, tokens) : prepareTables(layer, tokens);
    prepared.set(layer, { tokens, value });
    return value;
  }

  // the influence of every position on the last token through the `depth` lowest layers, and what sinks took
  function influence(architecture, tokens, depth) {
    let row = new Float64Array(tokens);
    row[tokens - 1] = 1;
    let lost = 0;
    const { layers, mixing } = architecture;
    for (let t = depth - 1; t >= 0; t--) {
      const state = ready(layers[t % layers.length], tokens);
      const [next, taken] = state.push(state, mixing[t], row);
      row = next;
      lost += taken;
    }
    return { mass: row, lost };
  }

  return { influence, ready };
})();
