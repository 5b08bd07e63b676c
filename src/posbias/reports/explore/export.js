// Measured curves from files, and the pictures, file and link to take away; nothing goes over a network.
const measured = (() => {
  const id = (name) => document.getElementById(name);
  const MOST = 64e6;

  // a curve from the JSON of posbias measure or posbias predict; an Error says what is wrong
  function curveOf(text, name) {
    let answer;
    try { answer = JSON.parse(text); } catch { throw new Error(`${name}: expected JSON, got something else`); }
    const mass = answer && (answer.influence || answer.profile);
    const right = Array.isArray(mass) && mass.length > 2 && mass.every((value) => Number.isFinite(value) && value >= 0);
    const sum = right ? mass.reduce((total, value) => total + value, 0) : 0;
    if (!right || !(sum > 0)) throw new Error(`${name}: expected the JSON of posbias measure --json, got no influence by position`);
    return { key: `file ${name}`, title: answer.model || name, mass: mass.map((value) => value / sum), about: name };
  }

  function connect(curves, state, changed) {
    const list = id("curves");
    const add = (curve) => {
      const box = controls.make("input", { type: "checkbox", value: curve.key, checked: state().shown.includes(curve.key) });
      box.addEventListener("change", () => {
        const others = state().shown.filter((key) => key !== curve.key);
        state().shown = box.checked ? [...others, curve.key] : others;
        changed();
      });
      list.append(controls.make("div", { className: "field check" },
        controls.make("label", {}, box, ` ${curve.title}`),
        controls.make("p", { className: "note", textContent: curve.about || "" })));
    };
    curves.forEach(add);
    const take = async (file) => {
      try {
        if (file.size > MOST) throw new Error(`${file.name}: expected at most 64 MB, got ${Math.round(file.size / 1e6)} MB`);
        const curve = curveOf(await file.text(), file.name);
        if (!curves.some((one) => one.key === curve.key)) {
          curves.push(curve);
          state().shown = [...state().shown, curve.key];
          add(curve);
        }
        id("measured-said").textContent = `${curve.title}: ${summary.count(curve.mass.length, "token")}, drawn beneath.`;
        changed();
      } catch (error) {
        id("measured-said").textContent = error.message;
      }
    };
    id("measurement").addEventListener("change", (event) => [...event.target.files].forEach(take));
    addEventListener("dragover", (event) => event.preventDefault());
    addEventListener("drop", (event) => {
      event.preventDefault();
      [...event.dataTransfer.files].forEach(take);
    });
  }

  // the boxes as a state has them
  function tick(state) {
    for (const box of id("curves").querySelectorAll("input")) box.checked = state.shown.includes(box.value);
  }

  return { connect, tick };
})();

const exporter = (() => {
  const id = (name) => document.getElementById(name);

  function save(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    id("done").textContent = `${name} saved.`;
  }

  async function picture(text) {
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    await image.decode();
    const canvas = controls.make("canvas", { width: image.width * 2, height: image.height * 2 });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((done) => { canvas.toBlob(done, "image/png"); });
  }

  function connect(toml, title) {
    const svg = () => chart.alone(id("profile"), title());
    id("save-svg").addEventListener("click", () => save(new Blob([svg()], { type: "image/svg+xml" }), "influence.svg"));
    id("save-png").addEventListener("click", async () => save(await picture(svg()), "influence.png"));
    id("save-toml").addEventListener("click", () => save(new Blob([toml()], { type: "application/toml" }), "explored.toml"));
    id("copy-link").addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(location.href);
        id("done").textContent = "Link copied.";
      } catch {
        id("done").textContent = "The link is in the address bar.";
      }
    });
  }

  return { connect };
})();
