"use strict";
// Shared pieces: elements, numbers, the state that charts share, the tool tip, the frame of a figure.
const FL = {};

FL.NS = "http://www.w3.org/2000/svg";
FL.el = (tag, attrs = {}, ...children) => FL.fill(document.createElement(tag), attrs, children);
FL.svg = (tag, attrs = {}, ...children) => FL.fill(document.createElementNS(FL.NS, tag), attrs, children);
FL.fill = (node, attrs, children) => {
  for (const [key, value] of Object.entries(attrs)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((c) => c !== null && c !== undefined));
  return node;
};

FL.color = (i) => `var(--c${i % 8})`;
FL.dash = (i) => ["", "6 3", "2 2", "8 3 2 3"][Math.floor(i / 8) % 4];

// Numbers. SI prefixes, decimal; a missing number is a dash, never zero.
FL.num = (v) => (v === null || v === undefined ? "–" : v.toLocaleString("en-US"));
FL.bytes = (v) => {
  if (v === null || v === undefined) return "–";
  for (const [unit, scale] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (v >= scale) return `${FL.sig(v / scale)} ${unit}`;
  return `${Math.round(v)} B`;
};
FL.sig = (v) => (v === 0 ? "0" : Number(v.toPrecision(4)).toLocaleString("en-US", { maximumFractionDigits: 3 }));
FL.time = (ns) => {
  if (ns === null || ns === undefined) return "–";
  for (const [unit, scale] of [["s", 1e9], ["ms", 1e7]]) if (ns >= scale) return `${FL.sig(ns / (unit === "ms" ? 1e6 : scale))} ${unit}`;
  return ns >= 1000 ? `${FL.sig(ns / 1000)} us` : `${Math.round(ns)} ns`;
};
FL.gbps = (mbps) => (mbps === null || mbps === undefined ? "–" : `${FL.sig(mbps / 1000)} Gbit/s`);
FL.pct = (v) => (v === null || v === undefined ? "–" : `${v >= 10 || v === 0 ? v.toFixed(0) : v.toPrecision(2)} %`);
FL.ticks = (max, count) => {
  if (!(max > 0)) return [0];
  const raw = max / Math.max(1, count), power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const list = [];
  for (let v = 0; v <= max * 1.0001; v += step) list.push(Number(v.toPrecision(12)));
  return list;
};

// A series travels with its times as steps.
FL.unpack = (series) => {
  let at = 0;
  return { t: series.t.map((d) => (at += d)), v: series.v };
};
// Index of the last time not after t, or -1.
FL.before = (times, t) => {
  let lo = 0, hi = times.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (times[mid] <= t) lo = mid + 1; else hi = mid;
  }
  return lo - 1;
};

// What is selected, shown and when: charts subscribe and redraw what changed.
FL.store = (state) => {
  const listeners = [];
  return {
    state,
    on(keys, fn) { listeners.push([keys, fn]); },
    set(patch) {
      const changed = Object.keys(patch).filter((k) => state[k] !== patch[k]);
      Object.assign(state, patch);
      for (const [keys, fn] of listeners) if (keys.some((k) => changed.includes(k))) fn(state);
    },
    toggle(key, value) { this.set({ [key]: state[key] === value ? null : value }); },
  };
};

FL.tip = {
  node: null,
  show(x, y, head, rows = []) {
    const tip = (this.node ??= document.getElementById("tip"));
    tip.replaceChildren(FL.el("b", {}, head), ...rows.map((r) => (typeof r === "string" ? FL.el("div", {}, r)
      : FL.el("div", { class: "row" }, FL.el("i", { style: `background:${r.color}` }), FL.el("span", {}, r.name), FL.el("b", {}, r.value)))));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, x + 16 + box.width > innerWidth ? x - box.width - 14 : x + 16)}px`;
    tip.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - box.height - 6))}px`;
  },
  hide() { if (this.node) this.node.hidden = true; },
  // Make a mark tell its numbers on hover and on keyboard focus.
  attach(node, text) {
    const say = (x, y) => { const [head, ...rows] = text(); this.show(x, y, head, rows); };
    node.addEventListener("pointermove", (e) => say(e.clientX, e.clientY));
    node.addEventListener("pointerleave", () => this.hide());
    node.addEventListener("focus", () => { const b = node.getBoundingClientRect(); say(b.right, b.top); });
    node.addEventListener("blur", () => this.hide());
    return node;
  },
};

// Something that acts on click also acts on Enter and space.
FL.act = (node, label, fn) => {
  node.setAttribute("tabindex", "0");
  node.setAttribute("role", "button");
  node.setAttribute("aria-label", label);
  node.classList.add("click");
  node.addEventListener("click", (e) => { e.stopPropagation(); fn(); });
  node.addEventListener("keydown", (e) => {
    if (e.key === "Enter" || e.key === " ") { e.preventDefault(); e.stopPropagation(); fn(); }
  });
  return node;
};

// A figure: title, how to read it, a body, and the footer that every figure carries.
FL.figure = (parent, { id, title, how, footer, wide = false }) => {
  const controls = FL.el("div", {}), body = FL.el("div", { class: "body" });
  const node = FL.el("figure", { id, class: wide ? "wide" : null },
    FL.el("div", { class: "head" }, FL.el("h2", {}, title), controls),
    how ? FL.el("p", { class: "how" }, how) : null, body, FL.el("figcaption", {}, footer));
  parent.append(node);
  return { node, body, controls, empty: (text) => body.replaceChildren(FL.el("div", { class: "empty" }, text)) };
};

// Draw now and again whenever the width changes.
FL.responsive = (body, draw) => {
  let width = 0;
  const run = () => {
    const now = Math.max(280, Math.round(body.clientWidth));
    if (now === width) return;
    width = now;
    draw(width);
  };
  run();
  new ResizeObserver(run).observe(body);
  return () => { width = 0; run(); };
};

FL.hatch = () => FL.svg("defs", {}, FL.svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
  FL.svg("line", { x1: 0, y1: 0, x2: 0, y2: 6, stroke: "var(--soft)", "stroke-width": 1.2, opacity: 0.45 })));

// A group that shows nothing outside the plot.
FL.clipped = (root, a) => {
  const id = `clip${(FL.clips = (FL.clips ?? 0) + 1)}`;
  root.append(FL.svg("clipPath", { id }, FL.svg("rect", { x: a.left, y: a.top - 6, width: Math.max(1, a.right - a.left), height: a.bottom - a.top + 8 })));
  return root.appendChild(FL.svg("g", { "clip-path": `url(#${id})` }));
};

FL.canvas = (width, height, label) => FL.svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label }, FL.hatch());

// Axes of a plain x/y chart; returns the scales.
FL.axes = (root, { width, height, left = 62, right = 12, top = 10, bottom = 30, x0 = 0, xMax, yMax, xFmt, yFmt, xLabel, yLabel, yRight }) => {
  const x = (v) => left + ((v - x0) / (xMax - x0 || 1)) * (width - left - right);
  const y = (v) => height - bottom - (v / (yMax || 1)) * (height - top - bottom);
  for (const v of FL.ticks(yMax, Math.max(2, Math.round((height - top - bottom) / 42)))) {
    root.append(FL.svg("line", { class: "grid-line", x1: left, x2: width - right, y1: y(v), y2: y(v) }),
      FL.svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, yFmt(v)));
    if (yRight) root.append(FL.svg("text", { x: width - right + 6, y: y(v) + 4 }, yRight(v)));
  }
  const span = xMax - x0;
  for (const t of FL.ticks(span, Math.max(2, Math.round((width - left - right) / 105)))) {
    const v = x0 + t;
    root.append(FL.svg("line", { class: "axis", x1: x(v), x2: x(v), y1: height - bottom, y2: height - bottom + 4 }));
    if (x(v) < width - right - 18 || t === 0) root.append(FL.svg("text", { x: x(v), y: height - bottom + 15, "text-anchor": t === 0 ? "start" : "middle" }, xFmt(v)));
  }
  root.append(FL.svg("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
  if (xLabel) root.append(FL.svg("text", { x: width - right, y: height - 2, "text-anchor": "end" }, xLabel));
  if (yLabel) root.append(FL.svg("text", { x: 2, y: 10, class: "label" }, yLabel));
  return { x, y, left, right: width - right, top, bottom: height - bottom, invert: (px) => x0 + ((px - left) / (width - left - right)) * (xMax - x0) };
};
