// What is chosen, and what follows from it: the layers and λ that kernel.js sweeps, a link, and the file that posbias
// predict takes. Options come from posbias.reports.explore.menu: spans that follow numbers, slopes or tables that are
// scaled, λ by layer. A control moves the number `key`, from `least` to `most` and beginning at `first`.
const choices = (() => {
  const SCALES = ["logarithm", "even", "share"].map((key) => ({ key }));
  const kept = new Map();
  const unpacked = new Map();

  // numbers as posbias.reports.explore.menu packs them
  function unpack(packed) {
    if (unpacked.has(packed)) return unpacked.get(packed);
    let numbers;
    if (packed.runs) numbers = packed.runs[0].flatMap((value, k) => Array(packed.runs[1][k]).fill(value));
    else if (packed.line) numbers = Array.from({ length: packed.line[1] }, (_, k) => packed.line[0] * k);
    else numbers = Array.from(new Float64Array(Uint8Array.from(atob(packed.bytes), (one) => one.charCodeAt(0)).buffer));
    unpacked.set(packed, numbers);
    return numbers;
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

  const option = (options, key) => options.find((one) => one.key === key);

  // what a number is now: as it was set, else as it begins, within its range, and the text where that limits it
  function number(state, { key, least, most, first, whole, within }) {
    const value = Math.max(least, Math.min(state.numbers[key] ?? first, most, within ? state.tokens : Infinity));
    return whole ? Math.round(value) : value;
  }

  // the numbers of controls by what they do
  const roles = (state, controls) => Object.fromEntries(controls.map((one) => [one.role, number(state, one)]));

  const hasSink = (state, menu) => state.numbers[menu.content.sink.key] !== undefined;

  function contentOf(state, menu) {
    const content = roles(state, menu.content.controls);
    // the same on every key cancels in a softmax without a sink
    return hasSink(state, menu) ? content : { ...content, constant: 0 };
  }

  // --- rotary positions ---

  // the scalings that what is chosen can have, and the one that it has; none without amplitudes
  const scalings = (state, menu) => {
    if (state.own) return menu.own.scalings;
    return option(menu.encodings, state.encoding).waves ? menu.scalings : menu.scalings.slice(0, 1);
  };
  const scalingOf = (state, menu) => option(scalings(state, menu), state.scaling) ?? menu.scalings[0];

  // angles and gain of rotary pairs (`turns` of posbias.reports.explore.menu) as the scaling that is chosen has them
  function turned(turns, state, menu) {
    const { key, controls: [factor] } = scalingOf(state, menu);
    if (!factor) return turns.own;
    const { keep, power, gain } = turns[key];
    const times = number(state, factor);
    const angles = turns.plain.map((angle, l) => angle * (keep[l] + (1 - keep[l]) * times ** -power[l]));
    return [angles, (1 + gain * Math.log(times)) ** 2];
  }

  // Σ_l gain·a_l·cos(d·θ_l + φ_l) at `count` distances d from 0, those of keys after the query where `side` is −1
  function cosines([angles, gain], [amplitudes, phases], count, side) {
    const sums = new Float64Array(count);
    angles.forEach((angle, l) => {
      for (let d = 0; d < count; d++) sums[d] += gain * amplitudes[l] * Math.cos(side * d * angle + phases[l]);
    });
    return Array.from(sums);
  }

  function waved(turns, waves, state, menu) {
    const count = Math.min(state.tokens, menu.limits.tables) + 1;
    const [table, after] = [1, -1].map((side) => cosines(turned(turns, state, menu), waves, count, side));
    return { table, after: after.slice(1) };
  }

  // --- layers and λ ---

  // times·table^power, signs kept
  function scaled(table, { times = 1, power = 1 }) {
    if (power === 1) return table.map((value) => times * value);
    return table.map((value) => times * Math.sign(value) * Math.abs(value) ** power);
  }

  function headsOf(state, menu) {
    const encoding = option(menu.encodings, state.encoding);
    const by = roles(state, encoding.controls);
    const { diagonal, first, constant } = contentOf(state, menu);
    const sink = hasSink(state, menu) ? number(state, menu.content.sink) - constant : null;
    const fixed = { diagonal, first, sink, slope: null, later: null, table: null, after: null };
    if (encoding.waves) {
      const { table, after } = waved(encoding.turns, encoding.waves, state, menu);
      return [{ ...fixed, weight: 1, table: scaled(table, by), after: scaled(after, by) }];
    }
    if (encoding.table) {
      const table = scaled(unpack(encoding.table), by);
      return [{ ...fixed, weight: 1, table, after: encoding.after ? scaled(unpack(encoding.after), by) : table.slice(1) }];
    }
    const slopes = scaled(encoding.slopes[String(state.heads)] || encoding.slopes["1"], by);
    return slopes.map((slope) => ({ ...fixed, weight: 1 / slopes.length, slope, later: slope * encoding.later }));
  }

  function layerOf(state, menu, mask) {
    const numbers = roles(state, mask.controls);
    const at = (rule) => rule && Object.entries(rule[1]).reduce((sum, [name, factor]) => sum + factor * numbers[name], rule[0]);
    const span = Object.fromEntries(Object.entries(mask.span).map(([name, rule]) => [name, at(rule)]));
    const set = Object.entries(state.numbers).filter(([name]) => !name.startsWith("schedule."));
    const text = option(menu.encodings, state.encoding).waves && [state.scaling, state.tokens];
    return same([span, state.heads, state.encoding, text, set], () => ({ ...span, starts: null, heads: headsOf(state, menu) }));
  }

  function ownHead(head, layer, state, menu) {
    const made = { ...head, factors: head.factors && unpack(head.factors) };
    if (head.waves) return { ...made, ...waved(layer.turns, head.waves, state, menu) };
    return { ...made, table: head.table && unpack(head.table), after: head.table && (head.after ? unpack(head.after) : []) };
  }

  function ownLayers(state, menu) {
    const waves = menu.own.layers.some((layer) => layer.turns);
    const text = waves && [state.tokens, state.scaling, roles(state, scalingOf(state, menu).controls)];
    return same(["own", text], () => menu.own.layers.map((layer) => (
      { ...layer, heads: layer.heads.map((head) => ownHead(head, layer, state, menu)) })));
  }

  // a layer of the chosen mask, or a period of them whose last one is global, each as `make` has it
  function pattern(state, menu, make) {
    const near = make(option(menu.masks, state.mask));
    if (state.every < 2) return [near];
    const all = Array(Math.min(state.every, state.depth)).fill(near);
    if (state.every <= state.depth) all[state.every - 1] = make(option(menu.masks, menu.global));
    return all;
  }

  const layers = (state, menu) => (state.own ? ownLayers(state, menu) : pattern(state, menu, (mask) => layerOf(state, menu, mask)));

  // λ by layer; a schedule of another depth is taken at the same relative depth, linear between two layers
  function mixing(state, menu) {
    if (!state.residual) return Array(state.depth).fill(1);
    const schedule = option(menu.schedules, state.schedule);
    const drawn = schedule.drawn ? state.drawn : schedule.coefficients;
    if (drawn) return stretched(drawn.length ? drawn : [0.5], state.depth);
    if (schedule.median) return median(Object.values(menu.known.models).map((values) => stretched(values, state.depth)));
    return scaled(unpack(schedule.table).slice(0, state.depth), roles(state, schedule.controls));
  }

  // layer by layer
  const median = (lists) => lists[0].map((_, t) => {
    const sorted = lists.map((values) => values[t]).sort((one, other) => one - other);
    return (sorted[(lists.length - 1) >> 1] + sorted[lists.length >> 1]) / 2;
  });

  function stretched(values, depth) {
    if (values.length === depth) return values.slice();
    return Array.from({ length: depth }, (_, t) => {
      const place = Math.max(0, Math.min(((t + 0.5) / depth) * values.length - 0.5, values.length - 1));
      const low = Math.floor(place);
      return values[low] + (place - low) * ((values[low + 1] ?? values[low]) - values[low]);
    });
  }

  const architecture = (state, menu) => ({ layers: layers(state, menu), mixing: mixing(state, menu) });

  // the longest text of what is chosen, and why
  function longest(state, menu) {
    const all = layers(state, menu);
    if (!all.every(kernel.swept)) return [menu.limits.tables, " with logits by distance"];
    if (kernel.ahead({ layers: all })) return [menu.limits.ahead, " with a mask that looks ahead"];
    return [menu.limits.tokens, ""];
  }

  // --- a file ---

  const times = (unit, factor) => (Array.isArray(unit) ? unit.map((one) => times(one, factor)) : unit * factor);

  // an option as a file holds it, its numbers as `at` has them
  const filled = ({ value, controls }, at) => (
    controls.reduce((made, one) => ({ ...made, [one.field]: times(one.unit, at(one)) }), value));

  // an encoding as a file holds it, under the rotary scaling that is chosen
  function scaledValue(value, state, menu) {
    const scaling = scalingOf(state, menu);
    const other = value.amplitudes && scaling.controls.length;
    return other ? { ...value, scaling: filled(scaling, (control) => number(state, control)) } : value;
  }

  function layerValue(state, menu, mask) {
    const at = (control) => number(state, control);
    const content = contentOf(state, menu);
    const value = {
      heads: state.heads, mask: filled(mask, at), positional: scaledValue(filled(option(menu.encodings, state.encoding), at), state, menu),
      content: Object.values(content).some(Boolean) ? filled(menu.content, (one) => content[one.role]) : menu.content.none,
    };
    return hasSink(state, menu) ? { ...value, sinks: [at(menu.content.sink)] } : value;
  }

  function mixingValue(state, menu) {
    if (!state.residual) return menu.schedules.find((one) => one.alone).value;
    const schedule = option(menu.schedules, state.schedule);
    if (schedule.drawn || (schedule.coefficients && schedule.coefficients.length !== state.depth)) {
      const drawn = menu.schedules.find((one) => one.drawn);
      return { ...drawn.value, [drawn.drawn]: mixing(state, menu) };
    }
    return filled(schedule, (control) => number(state, control));
  }

  function literal(value) {
    if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
    if (value !== null && typeof value === "object") return `{ ${pairs(value).join(", ")} }`;
    return JSON.stringify(value);
  }

  const pairs = (value) => Object.entries(value).filter(([, one]) => one !== null).map(([name, one]) => `${name} = ${literal(one)}`);

  // the architecture in TOML
  function toml(state, menu) {
    const own = (layer) => ({ ...layer, positional: scaledValue(layer.positional, state, menu) });
    const all = state.own ? menu.own.values.slice(0, state.depth).map(own) : pattern(state, menu, (mask) => layerValue(state, menu, mask));
    return [
      "# from posbias explore", `# posbias predict FILE --tokens ${state.tokens}`,
      ...pairs({ depth: state.depth, mixing: mixingValue(state, menu) }),
      ...all.flatMap((layer) => ["", "[[layers]]", ...pairs(layer)]), "",
    ].join("\n");
  }

  // --- a link: `#depth=24&encoding.times=2&…`, of what is not as it begins ---

  function link(state, begin) {
    const [now, then] = [state, begin].map(({ numbers, ...rest }) => ({ ...rest, ...numbers }));
    const parts = new URLSearchParams();
    for (const name of Object.keys({ ...then, ...now })) {
      const [value, other] = [now, then].map((all) => String(all[name] ?? "none"));
      if (value !== other) parts.set(name, value);
    }
    return `#${parts}`;
  }

  // what is chosen by a link; what it does not say, or says wrongly, is as it begins
  function read(hash, begin, menu) {
    const state = structuredClone(begin);
    const { limits } = menu;
    const range = { depth: [1, limits.layers], heads: [1, limits.heads.at(-1)], tokens: [8, limits.tokens], every: [0, limits.layers] };
    const known = { mask: menu.masks, encoding: menu.encodings, schedule: menu.schedules, scaling: menu.scalings, scale: SCALES };
    for (const [name, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
      const value = text === "" ? NaN : Number(text);
      if (range[name]) state[name] = Number.isFinite(value) ? Math.max(range[name][0], Math.min(Math.round(value), range[name][1])) : begin[name];
      else if (known[name]) state[name] = known[name].some((one) => one.key === text && !one.reason) ? text : begin[name];
      else if (name === "residual" || name === "own") state[name] = text === "true";
      else if (name === "drawn") state.drawn = text.split(",").map(Number).filter((one) => one >= 0 && one <= 1);
      else if (name === "shown") state.shown = text ? text.split(",") : [];
      else if (text === "none") delete state.numbers[name];
      else if (Number.isFinite(value)) state.numbers[name] = value;
    }
    if (!limits.heads.includes(state.heads)) state.heads = begin.heads;
    state.own = state.own && Boolean(menu.own);
    return state;
  }

  return { architecture, hasSink, link, longest, mixing, number, option, read, scalingOf, scalings, stretched, toml };
})();
