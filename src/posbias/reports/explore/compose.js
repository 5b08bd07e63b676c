// From what is chosen to what kernel.js sweeps, and to the value that a file of posbias holds. Options come from
// posbias.reports.explore.menu: spans that follow numbers, slopes or tables that are scaled, λ by layer.
const compose = (() => {
  const kept = new Map();
  const unpacked = new Map();

  // numbers as posbias.reports.explore.menu packs them
  function unpack(packed) {
    if (unpacked.has(packed)) return unpacked.get(packed);
    let numbers;
    if (packed.runs) numbers = packed.runs[0].flatMap((value, k) => Array(packed.runs[1][k]).fill(value));
    else if (packed.line) numbers = Array.from({ length: packed.line[1] }, (_, k) => packed.line[0] * k);
    else {
      const text = atob(packed.bytes);
      const view = new DataView(new ArrayBuffer(text.length));
      for (let k = 0; k < text.length; k++) view.setUint8(k, text.charCodeAt(k));
      numbers = Array.from({ length: text.length / 8 }, (_, k) => view.getFloat64(8 * k, true));
    }
    unpacked.set(packed, numbers);
    return numbers;
  }

  const option = (options, key) => options.find((one) => one.key === key);

  // what a number is now: as it was set, else as it begins, within its range and the text's length
  function number(set, control, most = Infinity) {
    const value = set === undefined || !Number.isFinite(set) ? control.first : set;
    return Math.max(control.least, Math.min(value, control.most, most));
  }

  const numbersOf = (state, mask) => Object.fromEntries(mask.numbers.map((control) => {
    const [name] = control.path;
    const most = mask.ahead ? state.tokens : Infinity;
    return [name, Math.round(number(state.numbers[name], control, most))];
  }));

  function span(mask, numbers) {
    const at = (rule) => rule === null ? null
      : Object.entries(rule[1]).reduce((sum, [name, factor]) => sum + factor * numbers[name], rule[0]);
    const { behind, always, prefix, step } = mask.span;
    return { behind: at(behind), always: at(always), prefix: at(prefix), step: at(step), starts: null };
  }

  // x·table^y, its sign kept
  function scaled(table, times, power) {
    if (power === 1) return table.map((value) => times * value);
    return table.map((value) => times * Math.sign(value) * Math.abs(value) ** power);
  }

  function roles(set, controls) {
    const at = (role) => controls[role] ? number(set[role], controls[role]) : 1;
    return { times: at("times"), power: at("power") };
  }

  function headsOf(state, menu, encoding, content) {
    const { times, power } = roles(state.encoded, encoding.controls);
    const { diagonal, first, constant } = content;
    const sink = state.sink === null ? null : number(state.sink, menu.content.sink) - constant;
    const fixed = { diagonal, first, sink };
    if (encoding.table) {
      const table = scaled(unpack(encoding.table), times, power);
      const after = encoding.after ? scaled(unpack(encoding.after), times, power) : table.slice(1);
      return [{ weight: 1, slope: null, later: null, table, after, ...fixed }];
    }
    const slopes = encoding.slopes[String(state.heads)] || encoding.slopes["1"];
    return slopes.map((slope) => ({
      weight: 1 / slopes.length, slope: times * slope, later: times * slope * encoding.later,
      table: null, after: null, ...fixed,
    }));
  }

  function contentOf(state, menu) {
    const { controls } = menu.content;
    return Object.fromEntries(Object.entries(controls).map(([role, control]) => {
      const used = role !== "constant" || state.sink !== null;
      return [role, used ? number(state.content[role], control) : 0];
    }));
  }

  // the same object while nothing in it changes, for kernel.js keeps what it prepared of a layer
  function same(key, make) {
    const text = JSON.stringify(key);
    if (!kept.has(text)) {
      if (kept.size > 8) kept.delete(kept.keys().next().value);
      kept.set(text, make());
    }
    return kept.get(text);
  }

  function layers(state, menu) {
    if (state.own) return same(["own"], () => menu.own.layers.map((layer) => ({
      ...layer, heads: layer.heads.map((head) => ({
        ...head, table: head.table && unpack(head.table), after: head.table && (head.after ? unpack(head.after) : []),
        factors: head.factors && unpack(head.factors),
      })),
    })));
    const mask = option(menu.masks, state.mask);
    const encoding = option(menu.encodings, state.encoding);
    const content = contentOf(state, menu);
    const key = [state.heads, state.encoding, state.encoded, content, state.sink];
    const heads = () => headsOf(state, menu, encoding, content);
    const under = (one, numbers) => same([one.key, numbers, ...key], () => (
      { ...span(one, numbers), heads: heads() }));
    const near = under(mask, numbersOf(state, mask));
    const period = Math.min(state.every, state.depth);
    if (period < 2) return [near];
    const pattern = Array(period).fill(near);
    if (state.every <= state.depth) pattern[period - 1] = under(option(menu.masks, menu.global), {});
    return pattern;
  }

  // λ by layer; a schedule of another depth is taken at the same relative depth, linear between two layers
  function mixing(state, menu) {
    if (!state.residual) return Array(state.depth).fill(1);
    const schedule = option(menu.schedules, state.schedule);
    const drawn = schedule.drawn ? state.drawn : schedule.coefficients;
    if (drawn) return stretched(drawn.length ? drawn : [0.5], state.depth);
    if (schedule.median) return median(Object.values(menu.known.models).map((values) => stretched(values, state.depth)));
    const { times, power } = roles(state.scheduled, schedule.controls);
    return scaled(unpack(schedule.table).slice(0, state.depth), times, power);
  }

  // layer by layer
  const median = (lists) => lists[0].map((_, t) => {
    const sorted = lists.map((values) => values[t]).sort((one, other) => one - other);
    return (sorted[(lists.length - 1) >> 1] + sorted[lists.length >> 1]) / 2;
  });

  function stretched(values, depth) {
    if (values.length === depth) return values.slice();
    return Array.from({ length: depth }, (_, t) => {
      const place = ((t + 0.5) / depth) * values.length - 0.5;
      const low = Math.max(0, Math.min(Math.floor(place), values.length - 1));
      const high = Math.min(low + 1, values.length - 1);
      const share = Math.max(0, Math.min(place - low, 1));
      return values[low] + share * (values[high] - values[low]);
    });
  }

  const architecture = (state, menu) => ({ layers: layers(state, menu), mixing: mixing(state, menu) });

  const sweeps = (state, menu) => layers(state, menu).every((layer) => layer.heads.every((head) => !head.table));

  // --- the value that a file holds ---

  const times = (unit, factor) => Array.isArray(unit) ? unit.map((one) => times(one, factor)) : unit * factor;

  function filled(value, controls, set) {
    const made = structuredClone(value);
    for (const [role, control] of Object.entries(controls)) {
      made[control.path[0]] = times(control.unit, number(set[role], control));
    }
    return made;
  }

  function layerValue(state, menu, mask) {
    const encoding = option(menu.encodings, state.encoding);
    const content = contentOf(state, menu);
    const plain = Object.values(content).every((value) => value === 0);
    const value = {
      heads: state.heads,
      mask: { ...mask.value, ...numbersOf(state, mask) },
      positional: filled(encoding.value, encoding.controls, state.encoded),
      content: plain ? menu.content.none : filled(menu.content.value, menu.content.controls, content),
    };
    if (state.sink !== null) value.sinks = [number(state.sink, menu.content.sink)];
    return value;
  }

  function mixingValue(state, menu) {
    const { schedules } = menu;
    if (!state.residual) return schedules.find((one) => one.alone).value;
    const schedule = option(schedules, state.schedule);
    const drawn = schedules.find((one) => one.drawn);
    if (schedule.drawn || (schedule.coefficients && schedule.coefficients.length !== state.depth)) {
      return { ...drawn.value, [drawn.drawn[0]]: mixing(state, menu) };
    }
    return filled(schedule.value, schedule.controls, state.scheduled);
  }

  function value(state, menu) {
    const near = state.own ? null : layerValue(state, menu, option(menu.masks, state.mask));
    const all = state.own ? menu.own.values.slice(0, state.depth) : Array(Math.max(1, Math.min(state.every, state.depth))).fill(near);
    if (!state.own && state.every > 1 && state.every <= state.depth) {
      all[state.every - 1] = layerValue(state, menu, option(menu.masks, menu.global));
    }
    return { depth: state.depth, mixing: mixingValue(state, menu), layers: all };
  }

  return { architecture, mixing, number, option, stretched, sweeps, value };
})();
