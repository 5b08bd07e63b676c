// The page: what is chosen, the curves that follow from it, and what can be saved.
const page = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { menu } = data;
  const DRAGGED = { swept: 4096, dense: 512 };
  const WORK = 2e8;
  const id = (name) => document.getElementById(name);
  let state = states.read(location.hash, data.begin, menu);
  let seen = null;
  let frame = 0;
  let turn = 0;
  const curves = data.curves.slice();

  // --- what is computed ---

  const sees = () => state.own ? menu.own.heads : state.heads;

  function fit() {
    const most = compose.sweeps(state, menu) ? menu.limits.tokens : state.own ? menu.own.tokens : menu.limits.dense;
    state.tokens = Math.min(state.tokens, most);
    return most;
  }

  // the layers after which the profile is drawn: all, or as many as `WORK` additions allow, at least eight
  function depths(tokens) {
    const { depth } = state;
    const each = tokens * sees() * depth * 0.5;
    const count = Math.max(8, Math.min(depth, Math.floor(WORK / each)));
    const chosen = Array.from({ length: Math.min(count, depth) }, (_, k) => Math.round(((k + 1) * depth) / Math.min(count, depth)));
    return [...new Set(chosen)];
  }

  const doubled = (depth) => Array.from({ length: 7 }, (_, k) => 2 ** k).filter((one) => one < depth);

  function compute(settled) {
    const most = fit();
    const swept = most === menu.limits.tokens;
    const tokens = settled ? state.tokens : Math.min(state.tokens, swept ? DRAGGED.swept : DRAGGED.dense);
    const architecture = compose.architecture(state, menu);
    const { mass, lost } = kernel.influence(architecture, tokens, state.depth);
    const near = settled || tokens * sees() * state.depth <= WORK / 400;
    const passed = near
      ? doubled(state.depth).map((depth) => ({ depth, mass: kernel.influence(architecture, tokens, depth).mass }))
      : [];
    const envelope = bounds.envelope(architecture, tokens, state.depth);
    return { architecture, tokens, mass, lost, passed, settled, envelope };
  }

  function changed(settled = true) {
    turn += 1;
    const mine = turn;
    cancelAnimationFrame(frame);
    document.documentElement.dataset.settled = "no";
    frame = requestAnimationFrame(() => {
      seen = compute(settled);
      views.profile(seen, state, curves);
      views.mixing(seen);
      show();
      if (settled) later(mine, seen, depths(seen.tokens), []);
    });
  }

  // what the rest of the page shows, a depth at a time, so that no slider waits for it
  function later(mine, now, left, done) {
    if (mine !== turn) return;
    const begun = performance.now();
    while (left.length && performance.now() - begun < 10) {
      const depth = left.shift();
      done.push({ depth, mass: kernel.influence(now.architecture, now.tokens, depth).mass });
    }
    if (left.length) {
      setTimeout(() => later(mine, now, left, done), 0);
      return;
    }
    now.trajectory = done;
    now.bounds = bounds.ofLayers(now.architecture, now.tokens, state.depth);
    views.layers(now, done);
    views.tables(now, curves, state);
    views.words(now, caveats(), state.own ? menu.own.exact : compose.option(menu.encodings, state.encoding).exact);
    id("file").querySelector("pre").textContent = toml();
    history.replaceState(null, "", states.link(state, data.begin) === "#" ? location.pathname + location.search
      : states.link(state, data.begin));
    document.documentElement.dataset.settled = "yes";
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
    for (const name of ["mask-part", "encoding-part", "content-part"]) id(name).disabled = state.own;
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
    views.connect(trajectory.connect(id("mixing"), () => compose.mixing(state, menu), drawLambda));
    exporter.connect({ toml, title: () => `Influence by position, ${state.tokens.toLocaleString("en")} tokens` });
    addEventListener("hashchange", () => {
      state = states.read(location.hash, data.begin, menu);
      measured.tick(state);
      remake();
    });
    new ResizeObserver(() => { if (seen) changed(seen.settled); }).observe(id("profile"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => changed());
  }

  begin();
  return {
    // what a script or a test may ask for
    get profile() { return Array.from(seen.mass); },
    get lost() { return seen.lost; },
    get state() { return structuredClone(state); },
    draw: () => { seen = compute(false); views.profile(seen, state, curves); views.mixing(seen); },
  };
})();
