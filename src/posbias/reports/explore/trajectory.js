// The chart of λ by layer, on which layers are set: by drawing, or one after another with the keyboard.
const trajectory = (() => {
  let at = 0;
  let place = null;

  // `set(layer, λ, settled)` for each layer that is moved
  function connect(svg, values, set) {
    const layerAt = (event) => {
      const box = svg.getBoundingClientRect();
      const count = values().length;
      const layer = Math.round(place.layer(event.clientX - box.left));
      const value = place.value(event.clientY - box.top);
      return [Math.max(0, Math.min(layer, count - 1)), Math.max(0, Math.min(Number(value.toFixed(3)), 1))];
    };
    let last = null;
    const move = (event, settled) => {
      const [layer, value] = layerAt(event);
      const [from, before] = last || [layer, value];
      const steps = Math.abs(layer - from);
      for (let k = steps ? 1 : 0; k <= steps; k++) {
        const share = steps ? k / steps : 1;
        const between = Number((before + share * (value - before)).toFixed(3));
        set(from + Math.sign(layer - from) * k, between, settled && k === steps);
      }
      last = [layer, value];
      at = layer;
    };
    svg.addEventListener("pointerdown", (event) => {
      svg.setPointerCapture(event.pointerId);
      last = null;
      move(event, false);
      event.preventDefault();
    });
    svg.addEventListener("pointermove", (event) => { if (last) move(event, false); });
    for (const end of ["pointerup", "pointercancel"]) {
      svg.addEventListener(end, () => {
        if (last) set(last[0], last[1], true);
        last = null;
      });
    }
    svg.addEventListener("keydown", (event) => key(event, svg, values, set));
  }

  function key(event, svg, values, set) {
    const now = values();
    const change = { ArrowUp: 0.01, ArrowDown: -0.01, PageUp: 0.1, PageDown: -0.1 }[event.key];
    const end = { Home: 0, End: 1 }[event.key];
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      at = Math.max(0, Math.min(at + (event.key === "ArrowRight" ? 1 : -1), now.length - 1));
      points(svg, now);
    } else if (change !== undefined || end !== undefined) {
      set(at, end ?? Math.max(0, Math.min(Number((now[at] + change).toFixed(4)), 1)), true);
    } else return;
    event.preventDefault();
    svg.querySelector('[tabindex="0"]').focus();
  }

  function points(svg, values) {
    at = Math.min(at, values.length - 1);
    svg.querySelectorAll(".point").forEach((point, layer) => chart.put(point, {
      tabindex: layer === at ? 0 : -1, "aria-valuenow": values[layer], "aria-valuetext": chart.rounded(values[layer]),
    }));
  }

  function draw(svg, values) {
    const x = { label: "layer", least: 0, most: Math.max(values.length - 1, 1), whole: true };
    const drawn = chart.draw(svg, { x, y: { least: 0, most: 1 }, lines: [{ class: "final", ys: values }] });
    let group = svg.querySelector(".points");
    if (!group) svg.append(group = chart.element("g", { class: "points" }));
    while (group.childElementCount > values.length) group.lastChild.remove();
    values.forEach((value, layer) => chart.put(group.children[layer] || group.appendChild(chart.element("circle", {
      class: "point", role: "slider", "aria-label": `λ of layer ${layer}`, "aria-valuemin": 0, "aria-valuemax": 1,
      "aria-orientation": "vertical",
    })), { cx: drawn.x(layer), cy: drawn.y(value), r: values.length > 48 ? 3 : 5 }));
    points(svg, values);
    const { left, right, top, bottom } = chart.MARGIN;
    const across = drawn.size.width - left - right;
    const down = drawn.size.height - top - bottom;
    place = { layer: (pixel) => ((pixel - left) / across) * x.most, value: (pixel) => 1 - (pixel - top) / down };
  }

  return { connect, draw };
})();
