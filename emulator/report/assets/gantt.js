// When each transfer ran and when its sender waited.

// rows: [{name, pick, bars: [{start, end, name, color, pick, tip: []}]}]
FL.gantt = (fig, store, rows, { end, label, keys }) => {
  const holder = FL.el("div", { class: "tall" });
  fig.body.replaceChildren(holder, FL.el("div", { class: "legend" }, ...keys));
  const lanes = rows.map((row) => {
    const free = [];
    for (const bar of row.bars) {
      let lane = free.findIndex((t) => t <= bar.start);
      if (lane < 0) lane = free.length;
      free[lane] = bar.end ?? end;
      bar.lane = lane;
    }
    return Math.max(1, free.length);
  });
  const line = rows.length > 40 ? 9 : rows.length > 16 ? 15 : 22;
  const inner = Math.max(3, line - 5);

  const draw = (width) => {
    const longest = Math.max(...rows.map((r) => r.name.length)), left = Math.min(longest * 7 + 12, width * 0.42), [from, to] = store.state.zoom ?? [0, end];
    const heights = lanes.map((n) => line + (n - 1) * Math.min(inner, 8)), total = heights.reduce((s, h) => s + h, 0) + 28;
    const root = FL.canvas(width, total, label);
    const a = { left, right: width - 10, top: 2, bottom: total - 26, x: (t) => left + ((t - from) / (to - from || 1)) * (width - left - 10), invert: (px) => from + ((px - left) / (width - left - 10)) * (to - from) };
    for (const t of FL.ticks(to - from, Math.max(2, Math.round((width - left) / 105)))) {
      const x = a.x(from + t);
      root.append(FL.svg("line", { class: "grid-line", x1: x, x2: x, y1: 2, y2: total - 26 }));
      if (x < width - 30) root.append(FL.svg("text", { x, y: total - 12, "text-anchor": "middle" }, FL.time(from + t)));
    }
    FL.timeMouse(root, a, store, { width, from, to, end, tell: () => [] });
    let y = 3;
    const flow = store.state.flow;
    rows.forEach((row, r) => {
      const lane = lanes[r] > 1 ? Math.min(inner, 8) : inner, height = heights[r];
      if (line >= 9 && (line > 10 || r % 2 === 0)) root.append(FL.svg("text", { x: left - 6, y: y + Math.min(14, height / 2 + 4), "text-anchor": "end", class: "name" }, row.name));
      let busy = 0;
      for (const bar of row.bars) {
        const stop = bar.end ?? end;
        if (bar.start > busy) FL.waiting(root, a, busy, bar.start, from, to, y + inner / 2, row.name);
        busy = Math.max(busy, stop);
        if (stop < from || bar.start > to) continue;
        const x0 = a.x(Math.max(bar.start, from)), x1 = a.x(Math.min(stop, to));
        const rect = FL.svg("rect", { x: x0, y: y + bar.lane * lane, width: Math.max(1, x1 - x0 - 0.5), height: Math.max(2, lane - 1), fill: bar.end === null ? "none" : bar.color, stroke: bar.end === null ? "var(--bad)" : "none", "stroke-dasharray": bar.end === null ? "3 2" : null, rx: 1.5,
          class: `${flow !== null && bar.pick !== flow ? "faded" : ""} bar-mark` });
        rect.addEventListener("click", (e) => { e.stopPropagation(); store.toggle("flow", bar.pick); });
        rect.addEventListener("pointerup", (e) => e.stopPropagation());
        rect.addEventListener("pointermove", (e) => { e.stopPropagation(); FL.tip.show(e.clientX, e.clientY, bar.name, bar.tip); });
        rect.classList.add("click");
        root.append(rect);
      }
      y += height;
    });
    const cursor = FL.svg("line", { class: "cursor", y1: 2, y2: total - 26 });
    fig.place = () => {
      const x = a.x(store.state.t);
      cursor.setAttribute("x1", x); cursor.setAttribute("x2", x);
      cursor.setAttribute("visibility", x >= left && x <= width - 9 ? "visible" : "hidden");
    };
    fig.place();
    root.append(cursor);
    holder.replaceChildren(root);
  };
  const again = FL.responsive(holder, draw);
  store.on(["t"], () => fig.place?.());
  store.on(["zoom", "flow"], again);
};

FL.waiting = (root, a, start, stop, from, to, y, name) => {
  if (stop < from || start > to) return;
  const x0 = a.x(Math.max(start, from)), x1 = a.x(Math.min(stop, to));
  if (x1 - x0 < 1.5) return;
  const line = FL.svg("line", { x1: x0, x2: x1, y1: y, y2: y, stroke: "var(--soft)", "stroke-dasharray": "2 3", "stroke-width": 1.4, class: "wait" });
  root.append(FL.tip.attach(line, () => [`${name} waits`, `${FL.time(start)} to ${FL.time(stop)} (${FL.time(stop - start)})`]));
};
