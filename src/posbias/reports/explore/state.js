// What is chosen as a link and as a file: `#depth=24&…` and TOML.
const states = (() => {
  const WORDS = ["mask", "encoding", "schedule", "scale"];
  const COUNTS = ["depth", "heads", "tokens", "every"];
  const GROUPS = { numbers: "", encoded: "encoding.", content: "content.", scheduled: "mixing." };

  // everything that can be chosen, as `name=value`; what is as it begins is left out
  function link(state, begin) {
    const parts = new URLSearchParams();
    const put = (name, value, other) => { if (value !== other) parts.set(name, String(value)); };
    for (const name of [...COUNTS, ...WORDS]) put(name, state[name], begin[name]);
    for (const [group, prefix] of Object.entries(GROUPS)) {
      for (const [name, value] of Object.entries(state[group])) put(prefix + name, value, begin[group][name]);
    }
    put("sink", state.sink === null ? "none" : state.sink, begin.sink === null ? "none" : begin.sink);
    for (const name of ["residual", "own"]) put(name, state[name] ? "on" : "off", begin[name] ? "on" : "off");
    put("drawn", state.drawn.join(","), begin.drawn.join(","));
    put("shown", state.shown.join(","), begin.shown.join(","));
    return `#${parts}`;
  }

  const within = (value, least, most, other) =>
    Number.isFinite(value) ? Math.max(least, Math.min(value, most)) : other;

  // the state of a link; what it does not say, or says wrongly, is as it begins
  function read(hash, begin, menu) {
    const parts = new URLSearchParams(hash.replace(/^#/, ""));
    const state = structuredClone(begin);
    const { limits } = menu;
    const most = { depth: limits.layers, heads: limits.heads.at(-1), tokens: limits.tokens, every: limits.layers };
    const known = {
      mask: usable(menu.masks), encoding: usable(menu.encodings),
      schedule: usable(menu.schedules), scale: ["even", "logarithm", "share"],
    };
    for (const [name, text] of parts) {
      if (COUNTS.includes(name)) {
        const least = { tokens: 8, every: 0 }[name] ?? 1;
        state[name] = within(Math.round(Number(text)), least, most[name], begin[name]);
      } else if (WORDS.includes(name)) state[name] = known[name].includes(text) ? text : begin[name];
      else if (name === "sink") state.sink = text === "none" || !Number.isFinite(Number(text)) ? null : Number(text);
      else if (name === "residual" || name === "own") state[name] = text === "on";
      else if (name === "drawn") state.drawn = text.split(",").map(Number).filter((x) => x >= 0 && x <= 1);
      else if (name === "shown") state.shown = text ? text.split(",") : [];
      else group(state, name, Number(text));
    }
    state.heads = limits.heads.includes(state.heads) ? state.heads : begin.heads;
    state.own = state.own && Boolean(menu.own);
    return state;
  }

  const usable = (options) => options.filter((one) => !one.reason).map((one) => one.key);

  function group(state, name, value) {
    if (!Number.isFinite(value)) return;
    const [key, prefix] = Object.entries(GROUPS).find(([, start]) => start && name.startsWith(start)) || ["numbers", ""];
    state[key][name.slice(prefix.length)] = value;
  }

  // --- TOML ---

  function literal(value) {
    if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
    if (value !== null && typeof value === "object") return `{ ${pairs(value).join(", ")} }`;
    return JSON.stringify(value);
  }

  const pairs = (value) => Object.entries(value)
    .filter(([, one]) => one !== null)
    .map(([name, one]) => `${name} = ${literal(one)}`);

  function toml(value, words) {
    const { layers, ...top } = value;
    const head = words.map((line) => `# ${line}`);
    const each = layers.flatMap((layer) => ["", "[[layers]]", ...pairs(layer)]);
    return [...head, ...pairs(top), ...each, ""].join("\n");
  }

  return { link, read, toml };
})();
