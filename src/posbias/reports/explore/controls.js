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

  // whole numbers from least to most, each once, in even ratios where they are many
  function spaced(least, most) {
    const low = Math.max(least, 1);
    const some = Array.from({ length: STEPS + 1 }, (_, k) => Math.round(low * (most / low) ** (k / STEPS)));
    return [...new Set([least, ...some.map((value) => (value < 1000 ? value : Number(value.toPrecision(3)))), most])];
  }

  // what a slider's place means: even steps, even ratios where the range is wide, or a list of values
  function scaleOf({ least, most, whole, values: list }) {
    const values = list || (whole && most - least > STEPS / 4 ? spaced(least, most) : null);
    if (values) {
      const nearest = (value) => values.reduce((best, one, k) => (
        Math.abs(one - value) < Math.abs(values[best] - value) ? k : best), 0);
      return { steps: values.length - 1, value: (place) => values[place], place: nearest };
    }
    const ratio = least > 0 && most / least > 30;
    const tidy = (value) => (whole ? Math.round(value) : Number(value.toPrecision(3)));
    if (!ratio) {
      const steps = whole ? most - least : STEPS;
      return {
        steps, value: (place) => tidy(least + ((most - least) * place) / steps),
        place: (value) => Math.round(((value - least) / (most - least)) * steps),
      };
    }
    return {
      steps: STEPS,
      value: (place) => tidy(Math.min(least * (most / least) ** (place / STEPS), most)),
      place: (value) => Math.round((Math.log(value / least) / Math.log(most / least)) * STEPS),
    };
  }

  // a slider and a number; `on(value, settled)` while it moves and when it stands
  function slider(id, control, on) {
    const scale = scaleOf(control);
    const { least, most, whole, values } = control;
    const range = make("input", { type: "range", id: `${id}-range`, min: 0, max: scale.steps, step: 1 });
    range.setAttribute("aria-label", `${control.label}, slider`);
    const number = make("input", { type: "number", id, min: least, max: most, step: whole ? 1 : "any" });
    const note = make("p", { className: "note", id: `${id}-why`, hidden: true });
    const field = make("div", { className: "field" },
      make("div", { className: "pair" }, make("label", { htmlFor: id, textContent: control.label }), number), range, note);
    const show = (value) => {
      if (document.activeElement !== number) number.value = String(value);
      range.value = String(scale.place(value));
      range.setAttribute("aria-valuetext", String(value));
    };
    const moved = (settled) => {
      const value = scale.value(Number(range.value));
      number.value = String(value);
      on(value, settled);
    };
    range.addEventListener("input", () => moved(false));
    range.addEventListener("change", () => moved(true));
    number.addEventListener("change", () => {
      const typed = Number(number.value);
      const fits = number.value !== "" && Number.isFinite(typed);
      const within = Math.max(least, Math.min(fits ? typed : control.first ?? least, most));
      const value = values ? values[scale.place(within)] : whole ? Math.round(within) : within;
      number.value = String(value);
      on(value, true);
    });
    const say = (words) => {
      note.hidden = !words;
      note.textContent = words;
    };
    const why = (reason) => {
      for (const input of [range, number]) input.disabled = Boolean(reason);
      say(reason);
    };
    return { field, show, say, why };
  }

  function options(select, list, on) {
    const usable = list.filter((one) => !one.reason);
    select.replaceChildren(...usable.map((one) => make("option", { value: one.key, textContent: one.title })));
    const greyed = list.filter((one) => one.reason);
    if (greyed.length) {
      select.append(make("optgroup", { label: "The page has no form for" }, ...greyed.map((one) => (
        make("option", { value: one.key, disabled: true, textContent: `${one.title}: ${one.reason}` })))));
    }
    select.addEventListener("change", () => on(select.value));
  }

  return { make, options, slider };
})();
