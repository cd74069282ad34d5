// The fabric as a drawing: every link twice (one line a direction), its queue as a small bar where the packets wait.

FL.tiers = (nodes) => {
  const order = { super: 0, core: 0, spine: 1, aggregation: 2, leaf: 3, switch: 3, tor: 3, host: 4 };
  const tiers = new Map();
  for (const n of nodes) {
    const tier = order[n.kind] ?? 2;
    if (!tiers.has(tier)) tiers.set(tier, []);
    tiers.get(tier).push(n);
  }
  return [...tiers.entries()].sort((p, q) => p[0] - q[0]).map((e) => e[1]);
};

FL.layout = (nodes, width) => {
  const tiers = FL.tiers(nodes), widest = Math.max(...tiers.map((t) => t.length));
  const w = Math.max(width, widest * 26 + 20), rows = tiers.length, height = rows * 104 + (widest > 16 ? 0 : 10);
  const place = {};
  tiers.forEach((tier, r) => tier.forEach((n, i) => {
    place[n.name] = { x: ((i + 0.5) / tier.length) * w, y: 26 + r * ((height - 60) / Math.max(1, rows - 1)), kind: n.kind };
  }));
  return { place, w, height };
};

FL.useColor = (use) => {
  if (use === null) return "var(--idle)";
  const u = Math.min(1, use / 100);
  return u < 0.5 ? `color-mix(in srgb, var(--hot1) ${Math.round(u * 200)}%, var(--hot0))` : `color-mix(in srgb, var(--hot2) ${Math.round(u * 200 - 100)}%, var(--hot1))`;
};
FL.queueColor = (q, port) => (q >= 0.9 * port.limit_bytes ? "var(--hot2)" : port.kmin_bytes !== null && q > port.kmin_bytes ? "var(--hot1)" : "var(--c0)");

FL.fabric = (fig, store, run) => {
  const frames = run.frames, ports = run.ports;
  const holder = FL.el("div", { class: "scroll" });
  const legend = FL.el("div", { class: "legend" },
    ...[["idle", 0], ["half", 50], ["line rate", 100]].map(([n, u]) => FL.el("span", { class: "key" }, FL.el("i", { style: `border-color:${FL.useColor(u)};border-top-width:${2 + u / 40}px` }), `link ${n}`)),
    ...[["below kmin", "var(--c0)"], ["marking", "var(--hot1)"], ["almost full", "var(--hot2)"]].map(([n, c]) => FL.el("span", { class: "key" }, FL.el("i", { style: `border-color:${c};border-top-width:9px;width:7px` }), `queue ${n}`)));
  fig.body.replaceChildren(holder, legend);
  let parts = [];

  const update = () => {
    const f = FL.frameAt(frames, store.state.t);
    for (const p of parts) {
      const q = frames.queue[p.port.port]?.[f] ?? null, use = frames.use[p.port.port]?.[f] ?? null;
      p.line.setAttribute("stroke", FL.useColor(use));
      p.line.setAttribute("stroke-width", use === null ? 1 : (1.3 + (3.2 * use) / 100).toFixed(2));
      p.line.setAttribute("stroke-dasharray", use === null ? "2 3" : "");
      const fill = q === null || !p.port.limit_bytes ? 0 : Math.sqrt(Math.min(1, q / p.port.limit_bytes));
      p.bar.setAttribute("y", (p.y0 + p.full * (1 - fill)).toFixed(2));
      p.bar.setAttribute("height", (p.full * fill).toFixed(2));
      p.bar.setAttribute("fill", q === null ? "none" : FL.queueColor(q, p.port));
      p.box.setAttribute("class", `${store.state.port === p.port.port ? "chosen" : ""}`);
      p.box.setAttribute("fill", q === null ? "url(#hatch)" : "var(--panel)");
    }
  };

  const draw = (width) => {
    const { place, w, height } = FL.layout(run.nodes, width), root = FL.canvas(w, height, "the fabric with the use of its links and the fill of its queues");
    root.style.minWidth = `${w}px`;
    const dense = run.nodes.length > 24, full = dense ? 11 : 17, wide = dense ? 4 : 7;
    parts = [];
    const under = FL.svg("g", {}), over = FL.svg("g", {});
    for (const port of ports) {
      const [a, b] = port.port.split(":"), p = place[a], q = place[b];
      if (!p || !q) continue;
      const length = Math.hypot(q.x - p.x, q.y - p.y) || 1, ux = (q.x - p.x) / length, uy = (q.y - p.y) / length, off = dense ? 1.6 : 2.8;
      const x1 = p.x - uy * off, y1 = p.y + ux * off, x2 = q.x - uy * off, y2 = q.y + ux * off;
      const line = FL.svg("line", { x1, y1, x2, y2, class: "link" });
      const near = Math.min(length * 0.4, (uy > 0 ? 30 : 28) + Math.abs(ux) * 14), side = wide * 0.95;
      const cx = x1 + ux * near - uy * side, cy = y1 + uy * near + ux * side * 0.4, y0 = cy - full / 2;
      const box = FL.svg("rect", { x: cx - wide / 2, y: y0, width: wide, height: full, stroke: "var(--soft)", "stroke-width": 0.8 });
      const bar = FL.svg("rect", { x: cx - wide / 2 + 0.6, y: y0 + full, width: wide - 1.2, height: 0 });
      const group = FL.svg("g", { "data-port": port.port }, box, bar);
      const hit = FL.svg("line", { x1, y1, x2: (x1 + x2) / 2, y2: (y1 + y2) / 2, stroke: "transparent", "stroke-width": 9 });
      const tell = () => {
        const f = FL.frameAt(frames, store.state.t), depth = frames.queue[port.port]?.[f] ?? null, use = frames.use[port.port]?.[f] ?? null;
        return [port.port, `${FL.time(frames.t[f])} to ${FL.time(frames.t[f + 1])}`, depth === null ? "queue: no sample" : `queue ${FL.bytes(depth)} of ${FL.bytes(port.limit_bytes)} (${FL.time((depth * 8) / port.rate_gbps)})`,
          `link ${use === null ? "unknown" : FL.pct(use)} of ${port.rate_gbps} Gbit/s`, `whole run: peak ${FL.bytes(port.max_bytes)}, marked ${FL.num(port.marked)}, dropped ${FL.num(port.dropped)}`];
      };
      FL.tip.attach(hit, tell);
      FL.tip.attach(group, tell);
      hit.addEventListener("click", () => store.toggle("port", port.port));
      FL.act(group, `port ${port.port}`, () => store.toggle("port", port.port));
      under.append(line, hit);
      over.append(group);
      parts.push({ port, line, box, bar, y0, full });
    }
    root.append(under, over);
    for (const [name, p] of Object.entries(place)) {
      const host = p.kind === "host", short = dense && host ? name.replace(/\D+/, "") : name, bw = host ? (dense ? 22 : Math.min(44, w / 8 - 3)) : 62, bh = host ? 18 : 24;
      root.append(FL.svg("rect", { class: "node", x: p.x - bw / 2, y: p.y - bh / 2, width: bw, height: bh, rx: 5 }), FL.svg("text", { x: p.x, y: p.y + 4, "text-anchor": "middle", class: "name", style: bw < 40 ? "font-size:9px" : null }, short));
    }
    holder.replaceChildren(root);
    update();
  };
  FL.responsive(holder, draw);
  store.on(["t", "port"], update);
};

FL.frameAt = (frames, t) => Math.max(0, Math.min(frames.t.length - 2, FL.before(frames.t, t)));
