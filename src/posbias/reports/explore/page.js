// The page: what is chosen, the curves that follow from it, and what can be saved.
const page = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { menu } = data;
  const [FRAME, REST, SLICE] = [1.1e7, 2e9, 8];
  const id = (name) => document.getElementById(name);
  let state = states.read(location.hash, data.begin, menu);
  let seen = null;
  let frame = 0;
  let turn = 0;
  const curves = data.curves.slice();

  // --- what is computed ---

  // the longest text of what is chosen, and why
  function longest() {
    const { tokens, ahead, tables } = menu.limits;
    if (state.own) return [menu.own.tokens, ""];
    if (!compose.sweeps(state, menu)) return [tables, " with logits by distance"];
    if (compose.option(menu.masks, state.mask).ahead) return [ahead, " with a mask that looks ahead"];
    return [tokens, ""];
  }

  const assumed = () => state.residual && compose.option(menu.schedules, state.schedule).assumed;

  // sweeps besides the final one: after 1, 2, 4, … layers, and under each known λ
  function* around(now, quick) {
    const { architecture, tokens } = now;
    const { depth } = state;
    now.passed = [];
    for (let some = 1; some < depth; some *= 2) {
      now.passed.push({ depth: some, mass: (yield* kernel.sweep(architecture, tokens, some, quick)).mass });
    }
    if (!assumed()) return;
    const band = { shapes: [], models: Object.keys(menu.known.models).length };
    for (const [name, values] of Object.entries({ ...menu.known.models, ...menu.known.checks })) {
      const { mass } = yield* kernel.sweep({ ...architecture, mixing: compose.stretched(values, depth) }, tokens, depth, quick);
      band.shapes.push({ name, ...summary.shape(mass) });
      band.low ??= mass.slice();
      band.high ??= mass.slice();
      if (name in menu.known.models) {
        for (let j = 0; j < tokens; j++) {
          if (mass[j] < band.low[j]) band.low[j] = mass[j];
          if (mass[j] > band.high[j]) band.high[j] = mass[j];
        }
      }
      yield;
    }
    now.band = band;
  }

  // what a frame has time for: a text shortened until its sweep takes `FRAME` nanoseconds, and other sweeps if they do
  function preview() {
    const architecture = compose.architecture(state, menu);
    const { depth } = state;
    let { tokens } = state;
    while (tokens > 256 && kernel.price(architecture, tokens, depth, true) > FRAME) tokens = Math.ceil(tokens / 2);
    const now = { architecture, tokens, passed: [], ...kernel.influence(architecture, tokens, depth, true) };
    now.envelope = bounds.envelope(architecture, tokens, depth);
    if (kernel.price(architecture, tokens, assumed() ? 8 * depth : 2 * depth, true) < FRAME) kernel.finish(around(now, true));
    return now;
  }

  function draw(now) {
    seen = now;
    views.profile(now, state, curves);
    trajectory.draw(id("mixing"), now.architecture.mixing);
  }

  function changed(settled = true) {
    turn += 1;
    const mine = turn;
    cancelAnimationFrame(frame);
    busy(true);
    frame = requestAnimationFrame(() => {
      state.tokens = Math.min(state.tokens, longest()[0]);
      draw(preview());
      if (!settled) return;
      show();
      run(mine, exact(seen.architecture));
    });
  }

  function busy(now) {
    document.documentElement.dataset.settled = now ? "no" : "yes";
    for (const name of ["profile", "layers"]) id(name).setAttribute("aria-busy", now);
  }

  // a few milliseconds of it at a time, so that no slider waits
  function run(mine, steps) {
    if (mine !== turn) return;
    const begun = performance.now();
    while (performance.now() - begun < SLICE) if (steps.next().done) return;
    setTimeout(() => run(mine, steps), 0);
  }

  // everything that the page shows, the most important first
  function* exact(architecture) {
    const { tokens, depth } = state;
    const now = { architecture, tokens, passed: [], ...(yield* kernel.sweep(architecture, tokens, depth)) };
    now.envelope = bounds.envelope(architecture, tokens, depth);
    draw(now);
    yield* around(now, false);
    draw(now);
    now.trajectory = [];
    const count = Math.max(8, Math.min(depth, Math.floor((2 * REST) / kernel.price(architecture, tokens, depth, false))));
    for (const some of new Set(Array.from({ length: count }, (_, k) => Math.ceil(((k + 1) * depth) / count)))) {
      const { mass } = yield* kernel.sweep(architecture, tokens, some);
      now.trajectory.push({ depth: some, shares: summary.shares(mass), first: mass[0] });
    }
    now.bounds = bounds.ofLayers(architecture, tokens, depth);
    views.layers(now, now.trajectory);
    views.tables(now, curves, state);
    views.words(now, caveats(), state.own ? menu.own.exact : compose.option(menu.encodings, state.encoding).exact);
    id("file").querySelector("pre").textContent = toml();
    const link = states.link(state, data.begin);
    history.replaceState(null, "", link === "#" ? location.pathname + location.search : link);
    busy(false);
  }

  function caveats() {
    const encoding = compose.option(menu.encodings, state.encoding);
    const schedule = compose.option(menu.schedules, state.schedule);
    const said = state.own ? menu.own.assumptions.slice() : [encoding.caveat];
    if (state.residual) said.push(schedule.caveat);
    return said.filter(Boolean);
  }

  const toml = () => states.toml(compose.value(state, menu), [
    "from posbias explore", `posbias predict FILE --tokens ${state.tokens}`,
  ]);

  // --- what can be chosen ---

  const set = (name) => (value, settled) => { state[name] = value; changed(settled); };
  const sizes = {};
  const sliders = { mask: [], encoding: [], schedule: [], content: [], sink: [] };

  function built() {
    const { limits } = menu;
    const whole = (label, least, most, more) => ({ label, least, most, whole: true, ...more });
    for (const [name, control] of Object.entries({
      depth: whole("Layers", 1, limits.layers),
      heads: whole("Heads", limits.heads[0], limits.heads.at(-1), { values: limits.heads }),
      tokens: whole("Tokens", 8, limits.tokens),
      every: whole("Period of global layers (0: none)", 0, 16),
    })) {
      sizes[name] = controls.slider(name, control, set(name));
      id(name === "every" ? "mask-numbers" : "sizes")[name === "every" ? "after" : "append"](sizes[name].field);
    }
    controls.options(id("mask"), menu.masks, (key) => { state.mask = key; remake(); });
    controls.options(id("encoding"), menu.encodings, (key) => { state.encoding = key; state.encoded = {}; remake(); });
    controls.options(id("schedule"), menu.schedules.filter((one) => !one.alone), (key) => {
      if (compose.option(menu.schedules, key).drawn) state.drawn = compose.mixing(state, menu);
      state.schedule = key;
      state.scheduled = {};
      remake();
    });
    controls.options(id("preset"), data.presets, (key) => {
      const { shown, tokens, scale } = state;
      state = structuredClone({ ...data.begin, own: false, shown, tokens, scale, ...presetOf(key).state });
      measured.tick(state);
      remake();
    });
    id("preset").prepend(controls.make("option", { value: "set", hidden: true, textContent: "as set below" }));
    id("residual").addEventListener("change", (event) => set("residual")(event.target.checked, true));
    id("sink").addEventListener("change", (event) => { state.sink = event.target.checked ? 0 : null; remake(); });
    id("scale").addEventListener("change", (event) => set("scale")(event.target.value, true));
    fill("content", Object.entries(menu.content.controls), state.content, "content");
    remake();
  }

  const presetOf = (key) => data.presets.find((one) => one.key === key);

  // whether the state is that of a preset, but for length, scale and curves
  function is(preset) {
    if (preset.reason) return false;
    const same = { tokens: state.tokens, scale: state.scale, shown: state.shown };
    const made = { ...data.begin, own: false, ...preset.state, ...same };
    return states.link(state, made) === "#" && states.link(made, state) === "#";
  }

  // sliders of a part, for numbers that `into` of the state holds
  function fill(part, list, set, into) {
    const place = id(`${part}-numbers`);
    sliders[part] = list.map(([role, control]) => {
      const one = controls.slider(`${part}-${role}`, control, (value, settled) => {
        if (into) state[into][role] = value;
        else state[role] = value;
        changed(settled);
      });
      return { ...one, refresh: () => one.show(compose.number(into ? state[into][role] : state[role], control)), role };
    });
    place.replaceChildren(...sliders[part].map((one) => one.field));
  }

  function remake() {
    const [mask, encoding, schedule] = [["masks", "mask"], ["encodings", "encoding"], ["schedules", "schedule"]]
      .map(([list, name]) => compose.option(menu[list], state[name]));
    fill("mask", mask.numbers.map((control) => [control.path[0], { ...control, whole: true }]), state.numbers, "numbers");
    fill("encoding", Object.entries(encoding.controls), state.encoded, "encoded");
    fill("schedule", Object.entries(schedule.controls), state.scheduled, "scheduled");
    fill("sink", state.sink === null ? [] : [["sink", menu.content.sink]], state, null);
    for (const [name, one] of Object.entries({ mask, encoding, schedule })) {
      id(name).value = one.key;
      id(`${name}-words`).textContent = `${one.words}.`;
    }
    changed();
  }

  function show() {
    for (const [name, one] of Object.entries(sizes)) one.show(state[name]);
    for (const part of Object.values(sliders)) for (const one of part) one.refresh();
    const now = presetOf(id("preset").value);
    const preset = now && is(now) ? now : data.presets.find(is);
    id("preset").value = preset ? preset.key : "set";
    id("preset-words").textContent = preset && preset.remarks ? preset.remarks.map((line) => `${line}.`).join(" ") : "";
    id("residual").checked = state.residual;
    id("sink").checked = state.sink !== null;
    id("scale").value = state.scale;
    id("schedule").value = state.schedule;
    id("schedule").disabled = !state.residual;
    for (const one of sliders.schedule) one.why(state.residual ? "" : "without a residual connection λ is 1");
    for (const one of sliders.content) {
      one.why(one.role === "constant" && state.sink === null ? "cancels in a softmax without a learned sink" : "");
    }
    const [most, why] = longest();
    sizes.tokens.say(`at most ${most.toLocaleString("en")}${why}`);
    for (const name of ["mask-part", "encoding-part", "content-part"]) id(name).disabled = state.own;
    if (state.own) sizes.heads.show(menu.own.heads);
    sizes.heads.why(state.own ? `${menu.own.title} says what its layers are` : "");
    if (state.own) id("mask-words").textContent = `${menu.own.title}: ${menu.own.reason}.`;
  }

  function drawLambda(layer, value, settled) {
    if (compose.option(menu.schedules, state.schedule).drawn === undefined || !state.residual) {
      state.drawn = compose.mixing(state, menu);
      state.schedule = menu.schedules.find((one) => one.drawn).key;
      state.scheduled = {};
      state.residual = true;
      remake();
    }
    if (state.drawn.length !== state.depth) state.drawn = compose.mixing(state, menu);
    state.drawn[layer] = value;
    changed(settled);
  }

  function begin() {
    built();
    measured.connect(curves, () => state, () => changed());
    trajectory.connect(id("mixing"), () => compose.mixing(state, menu), drawLambda);
    exporter.connect({ toml, title: () => `Influence by position, ${state.tokens.toLocaleString("en")} tokens` });
    addEventListener("hashchange", () => {
      state = states.read(location.hash, data.begin, menu);
      measured.tick(state);
      remake();
    });
    new ResizeObserver(() => { if (seen) changed(); }).observe(id("profile"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => changed());
  }

  begin();
  return {
    // what a script or a test may ask for
    get profile() { return Array.from(seen.mass); },
    get lost() { return seen.lost; },
    get state() { return structuredClone(state); },
    get band() { return seen.band ? { ...seen.band, low: Array.from(seen.band.low), high: Array.from(seen.band.high) } : null; },
    draw: () => draw(preview()),
  };
})();
