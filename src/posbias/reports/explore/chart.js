// Lines over two axes in plain SVG, as wide as their place, with a table of their numbers.
const chart = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const MARGIN = { top: 12, right: 14, bottom: 40, left: 52 };
  const named = new WeakMap();
  // to ask for a size after something was drawn lays the page out anew, so it is kept until it changes
  const parts = new WeakMap();
  const resized = new ResizeObserver((entries) => entries.forEach(({ target }) => { parts.get(target).size = null; }));

  function put(node, attributes) {
    for (const [key, value] of Object.entries(attributes)) {
      if (node.getAttribute(key) !== String(value)) node.setAttribute(key, value);
    }
    return node;
  }

  function element(name, attributes = {}, ...children) {
    const made = put(document.createElementNS(SVG, name), attributes);
    made.append(...children);
    return made;
  }

  const rounded = (value) => (Math.abs(value) >= 1000 ? value.toLocaleString("en") : String(Number(value.toPrecision(3))));

  function steps(least, most, count) {
    const raw = (most - least) / Math.max(count, 1);
    const power = 10 ** Math.floor(Math.log10(raw || 1));
    const step = [1, 2, 5, 10].find((one) => one * power >= raw) * power;
    const ticks = [];
    for (let k = Math.ceil(least / step - 1e-9); k * step <= most * (1 + 1e-9) + 1e-12; k++) ticks.push(k * step);
    return ticks;
  }

  function decades(least, most) {
    const [low, high] = [Math.ceil(Math.log10(least) - 1e-9), Math.floor(Math.log10(most) + 1e-9)];
    const every = Math.max(1, Math.ceil((high - low + 1) / 6));
    return Array.from({ length: high - low + 1 }, (_, k) => low + k).filter((k) => k % every === 0).map((k) => 10 ** k);
  }

  function axis({ least, most, logarithm }, from, to) {
    const place = logarithm ? (v) => Math.log10(Math.max(v, least * 1e-3)) : (v) => v;
    const [low, high] = [place(least), place(most)];
    const scale = (to - from) / (high - low || 1);
    return (value) => from + (place(value) - low) * scale;
  }

  // A line's points in pixels: ys·times at xs, or at every `step`; where they are closer than a pixel, the least and
  // the most of each. A line with `low` is the area between it and ys.
  function path({ xs, ys, low, times = 1, step = 1 }, x, y, width) {
    const tenth = (value) => Math.round(10 * value) / 10;
    const at = (values, k) => `${tenth(x(xs ? xs[k] : k * step))} ${tenth(y(values[k] * times))}`;
    const size = Math.max(1, ys.length / width);
    const picked = (values, most, least) => {
      const chosen = [];
      for (let begin = 0; begin < values.length; begin += size) {
        const from = Math.floor(begin);
        const to = Math.min(Math.floor(begin + size), values.length);
        let [highest, lowest] = [from, from];
        for (let k = from + 1; k < to; k++) {
          if (values[k] > values[highest]) highest = k;
          if (values[k] < values[lowest]) lowest = k;
        }
        const ends = most && least ? [highest, lowest].sort((one, other) => one - other) : [most ? highest : lowest];
        for (const k of new Set(ends)) chosen.push(at(values, k));
      }
      return chosen;
    };
    if (low) return `M${picked(ys, true, false).join("L")}L${picked(low, false, true).reverse().join("L")}Z`;
    return `M${picked(ys, true, true).join("L")}`;
  }

  function axes(spec, x, y, { width, height }) {
    const bottom = height - MARGIN.bottom;
    const ticks = spec.y.logarithm ? decades(spec.y.least, spec.y.most) : steps(spec.y.least, spec.y.most, height / 60);
    const along = steps(spec.x.least, spec.x.most, width / 80).filter((tick) => !spec.x.whole || tick % 1 === 0);
    const text = (name, place, words) => element("text", { class: name, "text-anchor": "middle", ...place }, words);
    return [
      ...ticks.flatMap((tick) => [
        element("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(tick), y2: y(tick) }),
        text("tick", { x: MARGIN.left - 6, y: y(tick) + 4, "text-anchor": "end" }, (spec.y.format || rounded)(tick)),
      ]),
      ...along.flatMap((tick) => [
        element("line", { class: "axis", x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 4 }),
        text("tick", { x: x(tick), y: bottom + 17 }, rounded(tick)),
      ]),
      element("line", { class: "axis", x1: MARGIN.left, x2: width - MARGIN.right, y1: bottom, y2: bottom }),
      text("label", { x: (MARGIN.left + width - MARGIN.right) / 2, y: height - 5 }, spec.x.label),
    ];
  }

  // what a chart has: its size, its axes with what they were made from, and the place of its lines
  function partsOf(svg) {
    if (!parts.has(svg)) {
      const [back, clip, inside] = ["g", "rect", "g"].map((name) => element(name));
      inside.setAttribute("clip-path", `url(#inside-${svg.id})`);
      svg.replaceChildren(back, element("clipPath", { id: `inside-${svg.id}` }, clip), inside);
      parts.set(svg, { back, clip, inside, made: "", size: null });
      resized.observe(svg);
    }
    const part = parts.get(svg);
    part.size ??= { width: Math.max(svg.clientWidth, 240), height: Math.max(svg.clientHeight, 120) };
    return part;
  }

  // lines: name, class, ys, and what else `path` takes; what is as it was stays
  function draw(svg, spec) {
    const part = partsOf(svg);
    const { width, height } = part.size;
    const x = axis(spec.x, MARGIN.left, width - MARGIN.right);
    const y = axis(spec.y, height - MARGIN.bottom, MARGIN.top);
    const made = JSON.stringify([part.size, spec.x, spec.y]);
    if (part.made !== made) {
      part.made = made;
      put(svg, { viewBox: `0 0 ${width} ${height}` });
      put(part.clip, {
        x: MARGIN.left - 4, y: MARGIN.top - 4, width: width - MARGIN.left - MARGIN.right + 8,
        height: height - MARGIN.top - MARGIN.bottom + 8,
      });
      part.back.replaceChildren(...axes(spec, x, y, part.size));
    }
    const { inside } = part;
    while (inside.childElementCount > spec.lines.length) inside.lastChild.remove();
    spec.lines.forEach((line, k) => {
      const place = inside.children[k] || inside.appendChild(element("path"));
      put(place, { class: `line ${line.class}`, d: path(line, x, y, width - MARGIN.left - MARGIN.right) });
    });
    return { x, y, size: part.size };
  }

  // made anew only where a name or a look has changed
  function legend(list, lines) {
    const shown = lines.map((line) => `${line.name}|${line.class}`).join("\n");
    if (named.get(list) === shown) return;
    named.set(list, shown);
    list.replaceChildren(...lines.filter((line) => line.name).map((line) => {
      const sample = element("svg", { class: "sample", viewBox: "0 0 28 10", "aria-hidden": "true" },
        element("path", { class: `line ${line.class}`, d: line.low ? "M1 0H27V10H1Z" : "M1 5H27" }));
      return controls.make("li", {}, sample, line.name);
    }));
  }

  const row = (cells, head) => controls.make("tr", {}, ...cells.map((text, k) => (
    controls.make(head || k === 0 ? "th" : "td", { textContent: text, ...(head ? { scope: "col" } : k === 0 && { scope: "row" }) }))));

  // a table of at most `most` of `count` rows, the last one included
  function table(place, head, count, cells, most = 33) {
    const rows = Math.min(count, most);
    const chosen = Array.from({ length: rows }, (_, k) => Math.round((k * (count - 1)) / Math.max(rows - 1, 1)));
    place.replaceChildren(controls.make("thead", {}, row(head, true)),
      controls.make("tbody", {}, ...chosen.map((k) => row(cells(k), false))));
  }

  // a copy of a chart that needs no style sheet
  function alone(svg, title) {
    const copy = svg.cloneNode(true);
    const [from, to] = [svg, copy].map((one) => [one, ...one.querySelectorAll("*")]);
    const names = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "font-size", "font-family"];
    from.forEach((one, k) => {
      const style = getComputedStyle(one);
      for (const name of names) to[k].setAttribute(name, style.getPropertyValue(name));
      to[k].removeAttribute("class");
    });
    const [width, height] = svg.getAttribute("viewBox").split(" ").slice(2);
    const paper = getComputedStyle(document.body).backgroundColor;
    copy.prepend(element("title", {}, title), element("rect", { width, height, fill: paper }));
    for (const [key, value] of Object.entries({ xmlns: SVG, width, height })) copy.setAttribute(key, value);
    return new XMLSerializer().serializeToString(copy);
  }

  return { MARGIN, alone, draw, element, legend, put, rounded, table };
})();
