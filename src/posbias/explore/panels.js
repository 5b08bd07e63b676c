// LayerNorm's recency by dimension and anisotropy, and the gaps of trained networks; tables that Python kept.
const panels = (() => {
  const id = (name) => document.getElementById(name);
  const ROW = 21;
  const share = (value) => value.toFixed(3);

  function recency({ dimensions, anisotropies, plain, residual }, on) {
    const rows = on ? residual : plain;
    const lines = anisotropies.map((alpha, k) => ({
      name: `anisotropy ${alpha}`, class: `alpha-${k}`, points: dimensions.map((d, at) => [Math.log2(d), rows[k][at]]),
    }));
    chart.draw(id("recency"), {
      x: { label: "dimension", least: 3, most: 10, whole: true, format: (power) => String(2 ** power) },
      y: { least: 0.5, most: 1 }, lines,
    });
    chart.legend(id("recency-legend"), lines);
    id("recency-words").textContent = "The chance that the last of three tokens scores its neighbour above the first, in the " +
      `second layer of an untrained network of LayerNorm and causal attention ${on ? "with" : "without"} residual ` +
      "connection; ½ is no preference. Anisotropy is what random embeddings share (Kim et al. 2026; by quadrature).";
    chart.table(id("recency-numbers").querySelector("table"), ["dimension", ...anisotropies.map((a) => `anisotropy ${a}`)],
      dimensions.map((d, at) => [String(d), ...rows.map((row) => share(row[at]))]));
  }

  function mark(kind, x, y) {
    if (kind === "first") return chart.element("circle", { class: "gap first", cx: x, cy: y, r: 3.5 });
    return chart.element("path", { class: "gap last", d: `M${x - 4} ${y - 4}L${x + 4} ${y + 4}M${x + 4} ${y - 4}L${x - 4} ${y + 4}` });
  }

  function gaps({ rows, iterations, learnt }, on) {
    const chosen = rows.filter((row) => row.residual === on);
    const svg = id("gaps");
    svg.style.height = `${chosen.length * ROW + 46}px`;
    const width = Math.max(svg.clientWidth, 240);
    const height = chosen.length * ROW + 46;
    const left = Math.min(190, width * 0.46);
    const most = Math.max(0.1, ...rows.flatMap((row) => [...row.first, ...row.last].map(Math.abs)));
    const x = (gap) => left + ((gap + most) / (2 * most)) * (width - left - 20);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    for (const tick of [-0.5, -0.25, 0, 0.25, 0.5].filter((one) => Math.abs(one) <= most)) {
      svg.append(
        chart.element("line", { class: tick === 0 ? "axis" : "grid", x1: x(tick), x2: x(tick), y1: 4, y2: height - 40 }),
        chart.element("text", { class: "tick", x: x(tick), y: height - 26, "text-anchor": "middle" }, String(tick)));
    }
    svg.append(chart.element("text", { class: "label", x: (left + width - 20) / 2, y: height - 6, "text-anchor": "middle" },
      "accuracy above the middle"));
    chosen.forEach((row, k) => {
      const y = 16 + k * ROW;
      svg.append(chart.element("text", { x: 0, y: y + 4 }, row.label));
      for (const kind of ["first", "last"]) for (const gap of row[kind]) svg.append(mark(kind, x(gap), y));
    });
    id("gaps-legend").replaceChildren(...["first", "last"].map((kind) => {
      const sample = chart.element("svg", { class: "sample", viewBox: "0 0 28 10", "aria-hidden": "true" }, mark(kind, 14, 5));
      return controls.make("li", {}, sample, `${kind} item, a mark for each network`);
    }));
    id("gaps-words").textContent = `Networks of Wu et al.'s task, trained here for ${iterations.toLocaleString("en")} ` +
      `iterations ${on ? "with" : "without"} residual connections: how much oftener the label of the first or last item is ` +
      "given than that of the middle one, where both items are one vector. By mask, encoding and depth; three networks of " +
      `each, those with in-context accuracy below ${learnt} left out.`;
    const told = (values) => values.map(share).join(", ") || "none has learnt";
    chart.table(id("gaps-numbers").querySelector("table"), ["mask, encoding, depth", "first − middle", "last − middle"],
      chosen.map((row) => [row.label, told(row.first), told(row.last)]));
  }

  function draw(data, residual) {
    recency(data.recency, residual);
    gaps(data.gaps, residual);
  }

  return { draw };
})();
