// Lines over two axes in plain SVG, as wide as their place, with a table of their numbers.
const chart = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const MARGIN = { top: 12, right: 14, bottom: 40, left: 52 };
  const named = new WeakMap();
  // to ask for a size after something was drawn lays the page out anew, so it is kept until it changes
  const sizes = new WeakMap();
  const resized = new ResizeObserver((entries) => entries.forEach(({ target }) => sizes.delete(target)));

  function element(name, attributes = {}, ...children) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
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

  // a path; where points are closer than a pixel, the least and the most of each pixel
  function path(points, x, y) {
    let text = "";
    const put = (point) => { text += `${text ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}`; };
    if (points.length < 1500) points.forEach(put);
    else {
      const size = points.length / 700;
      for (let begin = 0; begin < points.length; begin += size) {
        const some = points.slice(Math.floor(begin), Math.floor(begin + size) || 1);
        const order = some.reduce(([low, high], point, k) => (
          [point[1] < some[low][1] ? k : low, point[1] > some[high][1] ? k : high]), [0, 0]);
        for (const k of [...new Set([0, ...order, some.length - 1])].sort((a, b) => a - b)) put(some[k]);
      }
    }
    return text;
  }

  function axes(svg, spec, x, y, size) {
    const { width, height } = size;
    const bottom = height - MARGIN.bottom;
    const ticks = spec.y.logarithm ? decades(spec.y.least, spec.y.most) : steps(spec.y.least, spec.y.most, height / 60);
    for (const tick of ticks) {
      svg.append(
        element("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(tick), y2: y(tick) }),
        element("text", { class: "tick", x: MARGIN.left - 6, y: y(tick) + 4, "text-anchor": "end" },
          spec.y.format ? spec.y.format(tick) : rounded(tick)),
      );
    }
    const along = steps(spec.x.least, spec.x.most, width / 80).filter((tick) => !spec.x.whole || tick % 1 === 0);
    for (const tick of along) {
      svg.append(
        element("line", { class: "axis", x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 4 }),
        element("text", { class: "tick", x: x(tick), y: bottom + 17, "text-anchor": "middle" },
          spec.x.format ? spec.x.format(tick) : rounded(tick)),
      );
    }
    svg.append(
      element("line", { class: "axis", x1: MARGIN.left, x2: width - MARGIN.right, y1: bottom, y2: bottom }),
      element("text", { class: "label", x: (MARGIN.left + width - MARGIN.right) / 2, y: height - 5, "text-anchor": "middle" },
        spec.x.label),
    );
  }

  function sizeOf(svg) {
    if (!sizes.has(svg)) {
      sizes.set(svg, { width: Math.max(svg.clientWidth, 240), height: Math.max(svg.clientHeight, 120) });
      resized.observe(svg);
    }
    return sizes.get(svg);
  }

  // lines: name, class, points [[x, y], …]; marks: points on a line; even: a level that is dashed
  function draw(svg, spec) {
    const size = sizeOf(svg);
    const x = axis(spec.x, MARGIN.left, size.width - MARGIN.right);
    const y = axis(spec.y, size.height - MARGIN.bottom, MARGIN.top);
    svg.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
    svg.replaceChildren();
    axes(svg, spec, x, y, size);
    const clip = `inside-${svg.id}`;
    svg.append(element("clipPath", { id: clip }, element("rect", {
      x: MARGIN.left - 4, y: MARGIN.top - 4, width: size.width - MARGIN.left - MARGIN.right + 8,
      height: size.height - MARGIN.top - MARGIN.bottom + 8,
    })));
    const inside = element("g", { "clip-path": `url(#${clip})` });
    for (const line of spec.lines) {
      inside.append(element("path", { class: `line ${line.class}`, d: path(line.points, x, y) }));
    }
    svg.append(inside);
    return { x, y, size };
  }

  // made anew only where a name or a look has changed
  function legend(list, lines) {
    const shown = lines.map((line) => `${line.name}|${line.class}`).join("\n");
    if (named.get(list) === shown) return;
    named.set(list, shown);
    list.replaceChildren(...lines.filter((line) => line.name).map((line) => {
      const sample = element("svg", { class: "sample", viewBox: "0 0 28 10", "aria-hidden": "true" },
        element("path", { class: `line ${line.class}`, d: "M1 5H27" }));
      const item = document.createElement("li");
      item.append(sample, line.name);
      return item;
    }));
  }

  function row(cells, name) {
    const made = document.createElement("tr");
    made.append(...cells.map((text, k) => {
      const cell = document.createElement(name === "th" || k === 0 ? "th" : "td");
      cell.scope = name === "th" ? "col" : k === 0 ? "row" : "";
      if (!cell.scope) cell.removeAttribute("scope");
      cell.textContent = text;
      return cell;
    }));
    return made;
  }

  // a table of at most `most` rows, the last one included
  function table(place, head, rows, most = 33) {
    const every = Math.max(1, (rows.length - 1) / (most - 1));
    const chosen = rows.length <= most ? rows
      : Array.from({ length: most }, (_, k) => rows[Math.round(k * every)]);
    const [top, body] = [document.createElement("thead"), document.createElement("tbody")];
    top.append(row(head, "th"));
    body.append(...chosen.map((cells) => row(cells, "td")));
    place.replaceChildren(top, body);
  }

  // a copy of a chart that needs no style sheet
  function alone(svg, title) {
    const copy = svg.cloneNode(true);
    const [from, to] = [svg, copy].map((one) => [one, ...one.querySelectorAll("*")]);
    const names = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "font-size", "font-family"];
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

  return { MARGIN, alone, draw, element, legend, rounded, table };
})();
