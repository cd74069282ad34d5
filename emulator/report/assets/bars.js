// Histograms, distribution curves, shares.

// Bars of counts (left axis: share of packets) under the curve of their running sum (right axis).
FL.histogram = (fig, { counts, bin, guides, total, xFmt, label, xLabel }) => {
  const sum = total ?? counts.reduce((p, q) => p + q, 0);
  FL.responsive(fig.body, (width) => {
    const height = 230, root = FL.canvas(width, height, label);
    const used = counts.length, xMax = used * bin, top = Math.max(...counts) / sum;
    const a = FL.axes(root, { width, height, right: 44, top: 24, xMax, yMax: top * 1.05, xFmt, yFmt: (v) => FL.pct(v * 100), yLabel: "share of packets", xLabel });
    const up = (share) => a.bottom - share * (a.bottom - a.top);
    root.append(FL.svg("text", { x: width - 2, y: 11, "text-anchor": "end" }, "this or less"), ...[0, 0.25, 0.5, 0.75, 1].map((v) => FL.svg("text", { x: a.right + 6, y: up(v) + 4 }, FL.pct(100 * v))));
    let running = 0;
    const curve = [`M${a.x(0)},${a.bottom}`];
    counts.forEach((n, i) => {
      running += n;
      const x0 = a.x(i * bin), x1 = a.x((i + 1) * bin), upto = running / sum;
      const bar = FL.svg("rect", { x: x0 + 0.5, y: a.y(n / sum), width: Math.max(0.8, x1 - x0 - 1), height: Math.max(n ? 1 : 0, a.bottom - a.y(n / sum)), fill: "var(--c5)", opacity: 0.75 });
      const hit = FL.svg("rect", { x: x0, y: a.top, width: x1 - x0, height: a.bottom - a.top, fill: "transparent" });
      FL.tip.attach(hit, () => [`${xFmt(i * bin)} to ${xFmt((i + 1) * bin)}`, `${FL.num(n)} packets (${FL.pct((100 * n) / sum)})`, `${FL.pct(100 * upto)} met this or less`]);
      root.append(bar, hit);
      curve.push(`L${x1.toFixed(1)},${up(upto).toFixed(1)}`);
    });
    root.append(FL.svg("path", { d: curve.join(""), class: "series", stroke: "var(--c1)", style: "pointer-events:none" }));
    (guides ?? []).filter((g) => g.v <= xMax).forEach((g, i) => root.append(FL.svg("line", { class: "guide", x1: a.x(g.v), x2: a.x(g.v), y1: a.top, y2: a.bottom }), FL.svg("text", { x: a.x(g.v) + 3, y: a.top + 8 + 12 * i }, g.name)));
    fig.body.replaceChildren(root);
  });
};

// A distribution curve: points [value, share], and a lighter one behind it for comparison.
FL.cdf = (fig, { points, all, xFmt, label, xLabel, guide }) => {
  FL.responsive(fig.body, (width) => {
    const height = 210, root = FL.canvas(width, height, label);
    const reach = [...points, ...(all ?? [])].map((p) => p[0]), xMax = Math.max(...reach, guide ?? 0) * 1.04;
    const a = FL.axes(root, { width, height, top: 12, xMax, yMax: 1, xFmt, yFmt: (v) => FL.pct(v * 100), xLabel });
    if (guide) root.append(FL.svg("line", { class: "guide", x1: a.x(guide), x2: a.x(guide), y1: a.top, y2: a.bottom }), FL.svg("text", { x: a.x(guide) + 4, y: a.bottom - 6 }, "ideal"));
    const path = (list) => `M${a.x(list[0][0]).toFixed(1)},${a.bottom}` + list.map(([v, p]) => `V${a.y(p).toFixed(1)}`.replace("V", `H${a.x(v).toFixed(1)}V`)).join("") + `H${a.right}`;
    if (all) root.append(FL.svg("path", { d: path(all), class: "series faded", stroke: "var(--ink)" }));
    root.append(FL.svg("path", { d: path(points), class: "series strong", stroke: "var(--c0)" }));
    const dot = FL.svg("circle", { r: 4, fill: "var(--c0)", visibility: "hidden" });
    const hit = FL.svg("rect", { x: a.left, y: a.top, width: a.right - a.left, height: a.bottom - a.top, fill: "transparent" });
    hit.addEventListener("pointermove", (e) => {
      const box = root.getBoundingClientRect(), v = a.invert(((e.clientX - box.left) / box.width) * width);
      const i = FL.before(points.map((p) => p[0]), v);
      if (i < 0) { dot.setAttribute("visibility", "hidden"); FL.tip.show(e.clientX, e.clientY, `none below ${xFmt(v)}`); return; }
      dot.setAttribute("visibility", "visible");
      dot.setAttribute("cx", a.x(points[i][0])); dot.setAttribute("cy", a.y(points[i][1]));
      FL.tip.show(e.clientX, e.clientY, `${FL.pct(100 * points[i][1])} at most ${xFmt(points[i][0])}`);
    });
    hit.addEventListener("pointerleave", () => { FL.tip.hide(); dot.setAttribute("visibility", "hidden"); });
    root.append(hit, dot);
    fig.body.replaceChildren(root);
  });
};

// [value, share] of plain values.
FL.cdfOf = (values) => {
  const list = values.filter((v) => v !== null).sort((p, q) => p - q);
  return list.map((v, i) => [v, (i + 1) / list.length]);
};

// One bar a category, counts as lengths upwards.
FL.bars = (fig, { rows, xLabel, label, note }) => {
  FL.responsive(fig.body, (width) => {
    const height = 210, root = FL.canvas(width, height, label), top = Math.max(...rows.map((r) => r.value));
    const a = FL.axes(root, { width, height, top: 22, xMax: rows.length, yMax: top * 1.05, xFmt: () => "", yFmt: FL.num, yLabel: "packets", xLabel });
    const every = Math.ceil(rows.length / Math.max(1, (width - 80) / 44));
    rows.forEach((r, i) => {
      const x0 = a.x(i + 0.12), w = a.x(i + 0.88) - x0;
      const bar = FL.svg("rect", { x: x0, y: a.y(r.value), width: w, height: Math.max(1, a.bottom - a.y(r.value)), fill: "var(--c0)" });
      root.append(FL.tip.attach(bar, () => [`${r.name}`, `${FL.num(r.value)} packets`]));
      if (i % every === 0) root.append(FL.svg("text", { x: a.x(i + 0.5), y: a.bottom + 15, "text-anchor": "middle" }, r.name));
    });
    fig.body.replaceChildren(root, ...(note ? [FL.el("p", { class: "how" }, note)] : []));
  });
};

// Rows of parts that make a whole: [{name, parts: [{name, value, color}], pick}].
FL.shares = (fig, rows, { label, unit, onpick, chosen }) => {
  const box = FL.el("div", {}, FL.el("div", {}));
  FL.responsive(box, (width) => {
    const left = Math.min(150, width * 0.32), line = 22, root = FL.canvas(width, rows.length * line + 6, label);
    rows.forEach((row, r) => {
      const total = row.parts.reduce((s, p) => s + p.value, 0) || 1;
      const group = FL.svg("g", { class: chosen && !chosen(row) ? "faded" : null });
      group.append(FL.svg("text", { x: left - 6, y: r * line + 16, "text-anchor": "end", class: "name" }, row.name));
      let x = left;
      for (const part of row.parts) {
        const w = (part.value / total) * (width - left - 4), share = FL.pct((100 * part.value) / total);
        const rect = FL.svg("rect", { x, y: r * line + 3, width: Math.max(0.5, w - 1), height: line - 5, fill: part.color, rx: 2 });
        group.append(FL.tip.attach(rect, () => [`${row.name}`, `${part.name}: ${FL.num(part.value)} ${unit} (${share})`]));
        const text = `${part.name} ${share}`;
        if (w > text.length * 6.3) group.append(FL.svg("text", { x: x + w / 2, y: r * line + 16, "text-anchor": "middle", style: "fill:#fff;pointer-events:none;paint-order:stroke;stroke:#0006;stroke-width:2px" }, text));
        x += w;
      }
      if (onpick && row.pick !== undefined) FL.act(group, `show only ${row.name}`, () => onpick(row));
      root.append(group);
    });
    box.replaceChildren(root);
  });
  fig.body.append(box);
};

// Rows of numbers with a bar behind each: columns [{name, get, color}].
FL.barTable = (rows, columns, first) => {
  const most = columns.map((c) => Math.max(1, ...rows.map((r) => c.get(r) ?? 0)));
  return FL.el("div", { class: "scroll" }, FL.el("table", { class: "bars" }, FL.el("thead", {}, FL.el("tr", {}, FL.el("th", {}, first.name), ...columns.map((c) => FL.el("th", {}, c.name)))),
    FL.el("tbody", {}, ...rows.map((r) => FL.el("tr", {}, FL.el("td", {}, first.get(r)), ...columns.map((c, i) => {
      const v = c.get(r), share = (100 * (v ?? 0)) / most[i];
      return FL.el("td", { style: `background:linear-gradient(to left, color-mix(in srgb, ${c.color} 38%, transparent) ${share}%, transparent ${share}%)` }, FL.num(v));
    }))))));
};
