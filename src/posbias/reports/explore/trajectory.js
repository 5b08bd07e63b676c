// The chart of λ by layer, on which layers are set: by drawing, or one after another with the keyboard.
const trajectory = (() => {
  let at = 0;

  // `set(layer, λ, settled)` for each layer that is moved
  function connect(svg, values, set) {
    let place = null;
    const layerAt = (event) => {
      const { x, y } = place;
      const box = svg.getBoundingClientRect();
      const count = values().length;
      const layer = Math.round(x.invert(event.clientX - box.left));
      const value = y.invert(event.clientY - box.top);
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
    return (made) => { place = made; };
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
    svg.querySelectorAll(".point").forEach((point, layer) => {
      point.setAttribute("tabindex", layer === at ? 0 : -1);
      point.setAttribute("aria-valuenow", values[layer]);
      point.setAttribute("aria-valuetext", `${chart.rounded(values[layer])}`);
    });
  }

  function draw(svg, values) {
    const focused = svg.contains(document.activeElement);
    const spec = {
      x: { label: "layer", least: 0, most: Math.max(values.length - 1, 1), whole: true },
      y: { least: 0, most: 1 },
      lines: [{ class: "final", points: values.map((value, layer) => [layer, value]) }],
    };
    const { x, y, size } = chart.draw(svg, spec);
    const { left, right, top, bottom } = chart.MARGIN;
    values.forEach((value, layer) => svg.append(chart.element("circle", {
      class: "point", cx: x(layer), cy: y(value), r: values.length > 48 ? 3 : 5, role: "slider",
      "aria-label": `λ of layer ${layer}`, "aria-valuemin": 0, "aria-valuemax": 1, "aria-orientation": "vertical",
    })));
    points(svg, values);
    if (focused) svg.querySelector('[tabindex="0"]').focus({ preventScroll: true });
    const across = size.width - left - right;
    const down = size.height - top - bottom;
    return {
      x: { invert: (pixel) => ((pixel - left) / across) * spec.x.most },
      y: { invert: (pixel) => 1 - (pixel - top) / down },
    };
  }

  return { connect, draw };
})();
