// Sliders with a number next to each, and lists of options with the reason where one cannot be chosen.
const controls = (() => {
  const STEPS = 400;

  function make(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key in made) made[key] = value;
      else made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  }

  // the values of a slider's places: those listed, else even steps, or even ratios where the range is wide
  function valuesOf({ least, most, whole, values }) {
    if (values) return values;
    const low = whole ? Math.max(least, 1) : least;
    const ratios = low > 0 && (whole ? most - least > STEPS / 4 : most / least > 30);
    const steps = whole && !ratios ? most - least : STEPS;
    const tidy = (value) => (whole && value < 1000 ? Math.round(value) : Number(value.toPrecision(3)));
    const some = Array.from({ length: steps + 1 }, (_, k) => (
      tidy(ratios ? low * (most / low) ** (k / steps) : least + ((most - least) * k) / steps)));
    return [...new Set([least, ...some.slice(0, -1), most])];
  }

  // a slider and a number; `on(value, settled)` while it moves and when it stands
  function slider(control, on) {
    const { least, most, whole, label } = control;
    const id = control.key.replace(".", "-");
    const values = valuesOf(control);
    const nearest = (value) => values.reduce((best, one, k) => (Math.abs(one - value) < Math.abs(values[best] - value) ? k : best), 0);
    const range = make("input", { type: "range", id: `${id}-range`, min: 0, max: values.length - 1, step: 1, "aria-label": `${label}, slider` });
    const number = make("input", { type: "number", id, min: least, max: most, step: whole ? 1 : "any" });
    const note = make("p", { className: "note", id: `${id}-why`, hidden: true });
    const field = make("div", { className: "field" },
      make("div", { className: "pair" }, make("label", { htmlFor: id, textContent: label }), number), range, note);
    const show = (value) => {
      if (document.activeElement !== number) number.value = String(value);
      range.value = String(nearest(value));
      range.setAttribute("aria-valuetext", String(value));
    };
    const moved = (value, settled) => {
      number.value = String(value);
      on(value, settled);
    };
    range.addEventListener("input", () => moved(values[range.value], false));
    range.addEventListener("change", () => moved(values[range.value], true));
    number.addEventListener("change", () => {
      const typed = Number.isFinite(number.valueAsNumber) ? number.valueAsNumber : control.first ?? least;
      const within = Math.max(least, Math.min(typed, most));
      moved(control.values ? values[nearest(within)] : whole ? Math.round(within) : within, true);
    });
    const say = (words) => {
      note.hidden = !words;
      note.textContent = words;
    };
    const why = (reason) => {
      for (const input of [range, number]) input.disabled = Boolean(reason);
      say(reason);
    };
    return { control, field, show, say, why };
  }

  function options(select, list, on) {
    const item = (one, more) => make("option", { value: one.key, textContent: one.title, ...more });
    const greyed = list.filter((one) => one.reason);
    select.replaceChildren(...list.filter((one) => !one.reason).map((one) => item(one)));
    if (greyed.length) {
      select.append(make("optgroup", { label: "The page has no form for" }, ...greyed.map((one) => (
        item(one, { disabled: true, textContent: `${one.title}: ${one.reason}` })))));
    }
    select.addEventListener("change", () => on(select.value));
  }

  return { make, options, slider };
})();
