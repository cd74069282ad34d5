// A chart of series over fabric time: gaps stay open, one cursor and one zoom for all of them.

// Path of the points inside [from, to]; a null lifts the pen, a lonely point becomes a dot.
FL.linePath = (s, x, y, from, to, step) => {
  const parts = [], dots = [];
  let first = Math.max(0, FL.before(s.t, from)), open = false;
  for (let i = first; i < s.t.length; i++) {
    const v = s.v[i];
    if (v === null) { open = false; continue; }
    const px = x(s.t[i]).toFixed(1), py = y(v).toFixed(1);
    if (open) parts.push(step ? `H${px}V${py}` : `L${px},${py}`);
    else {
      parts.push(`M${px},${py}`);
      if (i + 1 >= s.t.length || s.v[i + 1] === null) dots.push([px, py]);
    }
    open = true;
    if (s.t[i] > to) break;
  }
  return { d: parts.join(""), dots };
};

FL.MARKS = { timeout: "M-4,-4L4,4M-4,4L4,-4", cnp: "M0,4L-4,-3L4,-3Z", loss: "M-4,0L0,-4L4,0L0,4Z" };
FL.markShape = (kind) => (/time-?out|rto|expired/.test(kind) ? "timeout" : /lost|loss|nack|nak|trim/.test(kind) ? "loss" : "cnp");

// series: {id, name, color, dash, t, v, marks: [[t, trigger, v]]}; options: yLabel, yFmt, guides [{v, name}], right (v) => text,
// key ("port" or "flow": what a click selects), footer, gaps, end, step, height.
FL.lines = (fig, store, series, options) => {
  const { yFmt, guides = [], right, key, gaps = [], end, step = false, height = 250, limit = 8 } = options;
  const chosen = () => series.filter((s) => s.pick === store.state[key]);
  let visible = [];
  const choose = () => {
    const mine = chosen();
    visible = options.all?.() ? series : [...new Set([...mine, ...series.slice(0, limit)])];
  };
  const legend = FL.el("div", { class: "legend" }), holder = FL.el("div", {});
  fig.body.replaceChildren(holder, legend);

  const draw = (width) => {
    choose();
    const [from, to] = store.state.zoom ?? [0, end];
    const mine = chosen(), focus = mine.length ? mine : visible;
    let peak = 0;
    for (const s of focus) for (let i = 0; i < s.t.length; i++) if (s.t[i] >= from && s.t[i] <= to && s.v[i] > peak) peak = s.v[i];
    if (options.yMax) peak = Math.max(peak, options.yMax);
    const near = guides.filter((g) => g.v <= Math.max(peak * 3, 1)), far = guides.filter((g) => !near.includes(g));
    const yMax = Math.max(peak, ...near.map((g) => g.v), 1) * 1.08;
    const root = FL.canvas(width, height, options.label);
    const a = FL.axes(root, { width, height, right: right ? 58 : 12, top: 22, x0: from, xMax: to, yMax, xFmt: FL.time, yFmt, yLabel: options.yLabel, yRight: right });
    if (right) root.append(FL.svg("text", { x: width - 2, y: 11, "text-anchor": "end" }, options.rightLabel));
    const clip = FL.clipped(root, a);
    clip.append(...gaps.filter(([g0, g1]) => g1 > from && g0 < to).map(([g0, g1]) => {
      const x0 = a.x(Math.max(g0, from)), x1 = a.x(Math.min(g1, to));
      const box = FL.svg("rect", { class: "gap", x: x0, y: a.top, width: Math.max(2, x1 - x0), height: a.bottom - a.top });
      return FL.tip.attach(box, () => ["no sample", `${FL.time(g0)} to ${FL.time(g1)}`, "nothing was measured here; it is not zero"]);
    }));
    const above = [];
    for (const g of near.sort((p, q) => p.v - q.v)) {
      const level = a.y(g.v), crowd = above.filter((v) => Math.abs(v - level) < 13).length;
      above.push(level);
      clip.append(FL.svg("line", { class: "guide", x1: a.left, x2: a.right, y1: a.y(g.v), y2: a.y(g.v) }),
        FL.svg("text", { x: a.right - 4 - crowd * 96, y: level - 4, "text-anchor": "end" }, `${g.name} ${yFmt(g.v)}`));
    }
    if (far.length) clip.append(FL.svg("text", { x: a.right - 4, y: a.top + 10, "text-anchor": "end" }, far.slice(0, width < 600 ? 1 : 3).map((g) => `${g.name} ${yFmt(g.v)}`).join(", ") + " above this scale"));
    for (const s of visible) {
      const { d, dots } = FL.linePath(s, a.x, a.y, from, to, step);
      const state = mine.length ? (mine.includes(s) ? "strong" : "faded") : "";
      clip.append(FL.svg("path", { d, class: `series ${state}`, stroke: s.color, "stroke-dasharray": s.dash, "data-id": s.id }));
      clip.append(...dots.map(([cx, cy]) => FL.svg("circle", { cx, cy, r: 2, fill: s.color, class: state })));
      if (state !== "faded") clip.append(...(s.marks ?? []).filter((m) => m[0] >= from && m[0] <= to && m[2] !== null).map((m) => {
        const kind = FL.markShape(m[1]);
        const shape = FL.svg("path", { d: FL.MARKS[kind], transform: `translate(${a.x(m[0]).toFixed(1)},${a.y(m[2]).toFixed(1)})`, fill: kind === "timeout" ? "none" : s.color,
          stroke: kind === "timeout" ? "var(--bad)" : s.color, "stroke-width": kind === "timeout" ? 2 : 0.5, class: "mark", "data-kind": kind });
        return FL.tip.attach(shape, () => [`${m[1]} at ${FL.time(m[0])}`, `${s.name}: ${yFmt(m[2])}`]);
      }));
      if (key) {
        const hit = FL.svg("path", { d, class: "hit" });
        hit.addEventListener("click", (e) => { e.stopPropagation(); store.toggle(key, s.pick); });
        clip.append(hit);
      }
    }
    const cursor = FL.svg("line", { class: "cursor", y1: a.top, y2: a.bottom });
    const place = () => {
      const t = store.state.t, inside = t >= from && t <= to;
      cursor.setAttribute("visibility", inside ? "visible" : "hidden");
      cursor.setAttribute("x1", a.x(t)); cursor.setAttribute("x2", a.x(t));
    };
    root.append(cursor);
    place();
    fig.place = place;
    FL.timeMouse(root, a, store, { width, from, to, end, tell: (t) => FL.valuesAt(visible, mine, t, yFmt) });
    holder.replaceChildren(root);
    drawLegend(mine);
  };

  const drawLegend = (mine) => legend.replaceChildren(...visible.map((s) => FL.el("button", { type: "button", "aria-pressed": String(mine.includes(s)), onclick: () => key && store.toggle(key, s.pick) },
    FL.el("i", { style: `border-color:${s.color};border-top-style:${s.dash ? "dashed" : "solid"}` }), s.name)),
    ...(visible.length < series.length ? [FL.el("span", { class: "key" }, `${series.length - visible.length} more are not drawn`)] : []), ...(options.keys ?? []));

  const again = FL.responsive(holder, draw);
  store.on(["t"], () => fig.place?.());
  store.on(["zoom", key ?? "zoom", "shown"], again);
  fig.redraw = again;
};

FL.valuesAt = (visible, mine, t, yFmt) => (mine.length ? mine : visible).map((s) => ({ s, v: s.v[FL.before(s.t, t)] ?? null }))
  .sort((p, q) => (q.v ?? -1) - (p.v ?? -1)).slice(0, 10)
  .map(({ s, v }) => ({ color: s.color, name: s.name, value: v === null ? "no sample" : yFmt(v) }));

// Hover tells, click sets the time, drag zooms, double click shows everything again; arrows move the time.
FL.timeMouse = (root, a, store, { width, from, to, end, tell }) => {
  const at = (e) => {
    const box = root.getBoundingClientRect();
    return Math.min(to, Math.max(from, a.invert(((e.clientX - box.left) / box.width) * width)));
  };
  let start = null, band = null;
  root.addEventListener("pointerdown", (e) => { if (e.pointerType === "mouse" && e.button === 0) start = at(e); });
  root.addEventListener("pointermove", (e) => {
    const t = at(e);
    if (!e.target.closest?.(".gap, .mark")) FL.tip.show(e.clientX, e.clientY, FL.time(t), tell(t));
    if (start === null) return;
    band ??= root.appendChild(FL.svg("rect", { class: "zoom", y: a.top, height: a.bottom - a.top }));
    band.setAttribute("x", Math.min(a.x(start), a.x(t)));
    band.setAttribute("width", Math.abs(a.x(t) - a.x(start)));
  });
  root.addEventListener("pointerleave", () => { FL.tip.hide(); start = null; band?.remove(); band = null; });
  root.addEventListener("pointerup", (e) => {
    const t = at(e), began = start;
    start = null;
    band?.remove();
    band = null;
    if (began === null && e.pointerType === "mouse") return;
    if (began !== null && Math.abs(a.x(t) - a.x(began)) > 8) store.set({ zoom: [Math.min(began, t), Math.max(began, t)] });
    else store.set({ t });
  });
  root.addEventListener("dblclick", () => store.set({ zoom: null }));
  root.setAttribute("tabindex", "0");
  root.addEventListener("keydown", (e) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (!move) return;
    e.preventDefault();
    const t = Math.min(end, Math.max(0, store.state.t + (move * (to - from)) / (e.shiftKey ? 20 : 200)));
    store.set({ t });
    const box = root.getBoundingClientRect();
    FL.tip.show(box.left + (a.x(t) / width) * box.width, box.top + 20, FL.time(t), tell(t));
  });
};
