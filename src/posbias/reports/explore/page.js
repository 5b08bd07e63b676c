// The page: what is chosen, the curves that follow from it, and what can be saved.
const page = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { menu } = data;
  const [FRAME, REST, SLICE] = [1.1e7, 2e9, 8];
  const id = (name) => document.getElementById(name);
  let state = choices.read(location.hash, data.begin, menu);
  let seen = null;
  let frame = 0;
  let turn = 0;
  const curves = data.curves.slice();

  // --- what is computed ---

  const chosen = (list, name) => choices.option(menu[list], state[name]);
  const assumed = () => state.residual && chosen("schedules", "schedule").assumed;

  // sweeps besides the final one: after 1, 2, 4, … layers, and under each known λ
  function* around(now) {
    const { architecture, tokens } = now;
    const { depth } = state;
    now.passed = [];
    for (let some = 1; some < depth; some *= 2) {
      now.passed.push({ depth: some, mass: (yield* kernel.sweep(architecture, tokens, some)).mass });
    }
    if (!assumed()) return;
    const band = { shapes: [], models: Object.keys(menu.known.models).length };
    for (const [name, values] of Object.entries({ ...menu.known.models, ...menu.known.checks })) {
      const { mass } = yield* kernel.sweep({ ...architecture, mixing: choices.stretched(values, depth) }, tokens, depth);
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
    const architecture = choices.architecture(state, menu);
    const { depth } = state;
    let { tokens } = state;
    while (tokens > 256 && kernel.price(architecture, tokens, depth) > FRAME) tokens = Math.ceil(tokens / 2);
    const now = { architecture, tokens, passed: [], ...kernel.influence(architecture, tokens, depth) };
    if (kernel.price(architecture, tokens, (assumed() ? 8 : 2) * depth) < FRAME) kernel.finish(around(now));
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
      state.tokens = Math.min(state.tokens, choices.longest(state, menu)[0]);
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
    draw(now);
    yield* around(now);
    draw(now);
    now.trajectory = [];
    const count = Math.max(8, Math.min(depth, Math.floor((2 * REST) / kernel.price(architecture, tokens, depth))));
    for (const some of new Set(Array.from({ length: count }, (_, k) => Math.ceil(((k + 1) * depth) / count)))) {
      const { mass } = yield* kernel.sweep(architecture, tokens, some);
      now.trajectory.push({ depth: some, shares: summary.shares(mass), first: mass[0] });
    }
    now.bounds = kernel.bounds(architecture, tokens, depth);
    views.layers(now);
    views.tables(now, curves, state);
    views.words(now, caveats(), state.own ? menu.own.exact : chosen("encodings", "encoding").exact);
    id("file").querySelector("pre").textContent = choices.toml(state, menu);
    const link = choices.link(state, data.begin);
    history.replaceState(null, "", link === "#" ? location.pathname + location.search : link);
    busy(false);
  }

  function caveats() {
    const said = state.own ? [...menu.own.assumptions] : [chosen("encodings", "encoding").caveat];
    if (state.residual) said.push(chosen("schedules", "schedule").caveat);
    return said.filter(Boolean);
  }

  // --- what can be chosen ---

  const set = (name) => (value, settled) => { state[name] = value; changed(settled); };
  const sizes = {};
  const sliders = {};

  // another option; numbers of its part of the page begin anew
  const choose = (name) => (key) => {
    state[name] = key;
    for (const one of Object.keys(state.numbers)) if (name !== "mask" && one.startsWith(`${name}.`)) delete state.numbers[one];
    remake();
  };

  function built() {
    const { limits } = menu;
    for (const control of [
      { key: "depth", label: "Layers", least: 1, most: limits.layers },
      { key: "heads", label: "Heads", least: limits.heads[0], most: limits.heads.at(-1), values: limits.heads },
      { key: "tokens", label: "Tokens", least: 8, most: limits.tokens },
      { key: "every", label: "Period of global layers (0: none)", least: 0, most: 16 },
    ]) {
      const { key } = control;
      sizes[key] = controls.slider({ ...control, whole: true }, set(key));
      id(key === "every" ? "mask-numbers" : "sizes")[key === "every" ? "after" : "append"](sizes[key].field);
    }
    controls.options(id("mask"), menu.masks, choose("mask"));
    controls.options(id("encoding"), menu.encodings, choose("encoding"));
    controls.options(id("scaling"), menu.scalings, choose("scaling"));
    id("scaled").append(...menu.scaled.map((line) => controls.make("p", { className: "note", textContent: `${line}.` })));
    controls.options(id("schedule"), menu.schedules.filter((one) => !one.alone), (key) => {
      if (choices.option(menu.schedules, key).drawn) state.drawn = choices.mixing(state, menu);
      choose("schedule")(key);
    });
    controls.options(id("preset"), data.presets, (key) => {
      const { shown, tokens, scale } = state;
      state = structuredClone({ ...data.begin, own: false, shown, tokens, scale, ...presetOf(key).state });
      measured.tick(state);
      remake();
    });
    id("preset").prepend(controls.make("option", { value: "set", hidden: true, textContent: "as set below" }));
    id("residual").addEventListener("change", (event) => set("residual")(event.target.checked, true));
    id("sink").addEventListener("change", (event) => {
      if (event.target.checked) state.numbers.sink = 0;
      else delete state.numbers.sink;
      remake();
    });
    id("scale").addEventListener("change", (event) => set("scale")(event.target.value, true));
    remake();
  }

  const presetOf = (key) => data.presets.find((one) => one.key === key);

  // why there is no rotary scaling to choose
  function unscaled() {
    const exact = state.own ? menu.own.exact : chosen("encodings", "encoding").exact;
    if (exact) return "Without rotary positions there is nothing to scale.";
    return "No configuration holds amplitudes of rotary positions: begin from a file of yours that has them.";
  }

  // whether the state is that of a preset, but for length, scale and curves
  function is(preset) {
    const { tokens, scale, shown } = state;
    const made = { ...data.begin, own: false, ...preset.state, tokens, scale, shown };
    return !preset.reason && choices.link(state, made) === "#";
  }

  // sliders for the numbers of a part
  function fill(part, list) {
    sliders[part] = list.map((control) => controls.slider(control, (value, settled) => {
      state.numbers[control.key] = value;
      changed(settled);
    }));
    id(`${part}-numbers`).replaceChildren(...sliders[part].map((one) => one.field));
  }

  function remake() {
    for (const [list, name] of [["masks", "mask"], ["encodings", "encoding"], ["schedules", "schedule"]]) {
      const one = chosen(list, name);
      fill(name, one.controls);
      id(name).value = one.key;
      id(`${name}-words`).textContent = `${one.words}.`;
    }
    const scaling = choices.scalingOf(state, menu);
    fill("scaling", scaling.controls);
    id("scaling").value = scaling.key;
    id("scaling-words").textContent = scaling.words && `${scaling.words}.`;
    fill("content", menu.content.controls);
    fill("sink", choices.hasSink(state, menu) ? [menu.content.sink] : []);
    changed();
  }

  function show() {
    for (const [name, one] of Object.entries(sizes)) one.show(state[name]);
    for (const one of Object.values(sliders).flat()) one.show(choices.number(state, one.control));
    const now = presetOf(id("preset").value);
    const preset = now && is(now) ? now : data.presets.find(is);
    id("preset").value = preset ? preset.key : "set";
    id("preset-words").textContent = (preset?.remarks ?? []).map((line) => `${line}.`).join(" ");
    const sink = choices.hasSink(state, menu);
    id("residual").checked = state.residual;
    id("sink").checked = sink;
    id("scale").value = state.scale;
    id("schedule").disabled = !state.residual;
    for (const one of sliders.schedule) one.why(state.residual ? "" : "without a residual connection λ is 1");
    for (const one of sliders.content) one.why(one.control.role === "constant" && !sink ? "cancels in a softmax without a learned sink" : "");
    const [most, why] = choices.longest(state, menu);
    sizes.tokens.say(`at most ${most.toLocaleString("en")}${why}`);
    const some = choices.scalings(state, menu);
    id("scaling-part").disabled = some.length === 1;
    for (const one of id("scaling").options) one.disabled = !choices.option(some, one.value);
    if (some.length === 1) id("scaling-words").textContent = unscaled();
    for (const name of ["mask-part", "encoding-part", "content-part"]) id(name).disabled = state.own;
    if (state.own) sizes.heads.show(menu.own.heads);
    sizes.heads.why(state.own ? `${menu.own.title} says what its layers are` : "");
    if (state.own) id("mask-words").textContent = `${menu.own.title}: ${menu.own.reason}.`;
  }

  function drawLambda(layer, value, settled) {
    const drawn = state.residual && chosen("schedules", "schedule").drawn;
    if (!drawn || state.drawn.length !== state.depth) state.drawn = choices.mixing(state, menu);
    if (!drawn) {
      state.residual = true;
      choose("schedule")(menu.schedules.find((one) => one.drawn).key);
    }
    state.drawn[layer] = value;
    changed(settled);
  }

  function begin() {
    built();
    measured.connect(curves, () => state, () => changed());
    trajectory.connect(id("mixing"), () => choices.mixing(state, menu), drawLambda);
    exporter.connect(() => choices.toml(state, menu), () => `Influence by position, ${state.tokens.toLocaleString("en")} tokens`);
    addEventListener("hashchange", () => {
      state = choices.read(location.hash, data.begin, menu);
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
