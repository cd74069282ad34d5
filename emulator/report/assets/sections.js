// The figures of one run, each into the parent it is given, so that one page may hold several runs.

FL.sections = {};

FL.sections.fabric = (parent, run, store, extra = {}) => {
  const fig = FL.figure(parent, { id: extra.id ?? "fabric", title: extra.title ?? "The fabric", wide: extra.wide ?? true, footer: run.footer,
    how: "Lines are links, one a direction; colour and width show how much of the rate is used. The small bar at a port is its queue, full at the limit (square-root scale). Move the slider or press play; click a port to follow it." });
  FL.fabric(fig, store, run);
};

FL.sections.queues = (parent, run, store, extra = {}) => {
  const fig = FL.figure(parent, { id: extra.id ?? "queues", title: extra.title ?? "Queue depth", wide: extra.wide ?? true, footer: run.footer,
    how: extra.how ?? "Bytes waiting at each port over time, the right axis as waiting time at that port's rate. Above kmin packets may be marked, above kmax all are, at the limit they are dropped. Hatched: nothing was sampled." });
  const peak = Object.fromEntries(run.ports.map((p) => [p.port, p]));
  const series = Object.entries(run.queues).map(([name, s]) => ({ id: name, pick: name, name, ...FL.unpack(s) }))
    .sort((p, q) => (peak[q.name]?.max_bytes ?? 0) - (peak[p.name]?.max_bytes ?? 0));
  series.forEach((s, i) => { s.color = FL.color(i); s.dash = FL.dash(i); });
  if (!series.length) return fig.empty("No queue was sampled in this run.");
  const top = peak[series[0].name], guides = [];
  for (const [name, key] of [["kmin", "kmin_bytes"], ["kmax", "kmax_bytes"], ["limit", "limit_bytes"]]) if (top?.[key]) guides.push({ name, v: top[key] });
  let all = false;
  FL.lines(fig, store, series, { key: "port", label: "queue depth by port over time", yFmt: FL.bytes, yLabel: "backlog", rightLabel: "waiting", guides, gaps: run.gaps, end: run.end, yMax: extra.yMax,
    right: top ? (v) => FL.time((v * 8) / top.rate_gbps) : null, limit: extra.limit ?? 8, all: () => all, height: 270 });
  if (series.length > 8) {
    const button = FL.el("button", { type: "button", "aria-pressed": "false", onclick: () => { all = !all; button.textContent = all ? "fullest 8" : `all ${series.length} ports`; fig.redraw(); } }, `all ${series.length} ports`);
    fig.controls.append(button);
  }
};

FL.sections.histogram = (parent, run, store, extra = {}) => {
  const fig = FL.figure(parent, { id: extra.id ?? "histogram", title: "Backlog that packets met", footer: run.footer,
    how: "Every data packet was counted on arrival by the queue in front of it: bars are shares, the line is the share that met this much or less." });
  const names = Object.keys(run.histogram);
  if (!names.length) return fig.empty("This kernel counted no histogram.");
  const fullest = FL.fullest(run.ports)?.port, first = names.includes(fullest) ? fullest : names[0];
  const select = FL.el("select", { "aria-label": "port", onchange: () => show(select.value) }, ...names.map((n) => FL.el("option", { value: n }, n)));
  fig.controls.append(select);
  const show = (name) => {
    select.value = name;
    const h = run.histogram[name], port = run.ports.find((p) => p.port === name), holder = FL.el("div", {});
    fig.body.replaceChildren(holder);
    FL.histogram({ body: holder }, { counts: h.counts, bin: h.bin, xFmt: FL.bytes, xLabel: "backlog met", label: `backlog that packets met at ${name}`,
      guides: ["kmin", "kmax"].filter((k) => port?.[`${k}_bytes`]).map((k) => ({ name: k, v: port[`${k}_bytes`] })) });
  };
  show(first);
  store.on(["port"], (s) => show(names.includes(s.port) ? s.port : first));
};

FL.sections.rates = (parent, run, store, extra = {}) => {
  const fig = FL.figure(parent, { id: extra.id ?? "rates", title: extra.title ?? "What congestion control did", wide: extra.wide ?? true, footer: run.footer,
    how: extra.how ?? "The pace (or window) of each flow. Triangles: it was told of congestion; diamonds: a loss; crosses: a timer ran out." });
  const has = (kind) => run.rates.some((r) => r[kind] && r[kind].v.some((v) => v !== null));
  const kinds = ["rate", "window"].filter(has);
  if (!kinds.length) return fig.empty("This transport reported no rate and no window.");
  const show = (kind) => {
    const label = FL.flowNames(run), several = new Set(run.rates.map((r) => r.flow)).size < run.rates.length;
    const series = run.rates.filter((r) => r[kind]).map((r, i) => ({ id: `${r.flow}/${r.qp}`, pick: r.flow, name: (label[r.flow] ?? `flow ${r.flow}`) + (several ? ` qp ${r.qp}` : ""), color: FL.color(i), dash: FL.dash(i), ...FL.unpack(r[kind]),
      marks: r.marks.map(([t, why, rate, window]) => [t, why, kind === "rate" ? rate : window]) }));
    const line = Math.max(...run.ports.filter((p) => p.port.startsWith("host")).map((p) => p.rate_gbps * 1000), 0);
    const holder = FL.el("div", {});
    fig.body.replaceChildren(holder);
    FL.lines({ ...fig, body: holder }, store, series, { key: "flow", label: `${kind} of each flow over time`, yFmt: kind === "rate" ? FL.gbps : FL.bytes, yLabel: kind, end: run.end, step: true, height: 260, yMax: extra.yMax?.[kind],
      guides: kind === "rate" && line ? [{ name: "line rate", v: line }] : [],
      keys: [["▼", "told of congestion"], ["◆", "loss"], ["✕", "time-out"]].map(([c, n]) => FL.el("span", { class: "key" }, `${c} ${n}`)) });
  };
  if (kinds.length > 1) fig.controls.append(FL.el("select", { "aria-label": "quantity", onchange: (e) => show(e.target.value) }, ...kinds.map((k) => FL.el("option", { value: k }, k))));
  show(kinds[0]);
};

// A flow is named by its ends when it has only one pair of them.
FL.flowNames = (run) => {
  const names = {}, f = run.flows;
  f.flow.forEach((flow, i) => {
    const text = `${f.src[i]} → ${f.dst[i]}`;
    names[flow] = names[flow] === undefined || names[flow] === text ? text : `flow ${flow}`;
  });
  return names;
};

FL.sections.gantt = (parent, run, store, extra = {}) => {
  const collective = run.summary.collective, f = run.flows;
  const fig = FL.figure(parent, { id: extra.id ?? "gantt", title: collective ? `Steps of the ${collective.algorithm} ${collective.name}` : "Transfers", wide: extra.wide ?? true, footer: run.footer,
    how: collective ? "One row a sender, one bar a transfer, coloured by step. Dotted: the rank waits for data that it must have first." : "One row a flow, one bar a transfer, from the hand-over to the last byte delivered. Dotted: nothing to send yet." });
  if (!f.flow.length) return fig.empty("No transfer was recorded.");
  const names = FL.flowNames(run), rows = new Map();
  f.flow.forEach((flow, i) => {
    if (f.start_ns[i] === null) return;
    const name = collective ? f.src[i] : names[flow];
    const id = collective ? name : flow;
    if (!rows.has(id)) rows.set(id, { name, bars: [] });
    const color = collective ? FL.color(f.step[i]) : FL.color(Number(flow));
    rows.get(id).bars.push({ start: f.start_ns[i], end: f.end_ns[i], color, pick: flow, name: `${f.src[i]} → ${f.dst[i]}${collective ? `, step ${f.step[i]}` : ""}`,
      tip: [`${FL.bytes(f.bytes[i])}, ${f.end_ns[i] === null ? "never finished" : `${FL.time(f.fct_ns[i])} (ideal ${FL.time(f.ideal_ns[i])})`}`, `from ${FL.time(f.start_ns[i])}${f.end_ns[i] === null ? "" : ` to ${FL.time(f.end_ns[i])}`}`,
        `sent ${FL.num(f.sent[i])} packets, ${FL.num(f.retransmitted[i])} again, ${FL.num(f.ce[i])} marked, ${FL.num(f.timeouts[i])} time-outs`] });
  });
  const list = [...rows.values()].sort((p, q) => p.name.localeCompare(q.name, "en", { numeric: true }));
  for (const row of list) row.bars.sort((p, q) => p.start - q.start);
  FL.gantt(fig, store, list, { end: run.end, label: "transfers over time", keys: [FL.el("span", { class: "key" }, FL.el("i", { style: "border-top:2px dotted" }), "waiting"), f.total > f.flow.length ? FL.el("span", { class: "key" }, `${f.flow.length} of ${f.total} transfers drawn`) : ""] });
};

FL.sections.paths = (parent, run, store, extra = {}) => {
  const fig = FL.figure(parent, { id: extra.id ?? "paths", title: "Path use", footer: run.footer,
    how: "Above: what each leaf sent up to each spine. Below: the paths that each pair of hosts used (named by switches, or by the UDP source port that chose them)." });
  const up = new Map();
  for (const p of run.ports) {
    const [a, b] = p.port.split(":");
    if (a.startsWith("leaf") && !b.startsWith("host") && p.tx_bytes) up.set(a, [...(up.get(a) ?? []), { name: b, value: p.tx_packets, color: FL.color(Number(b.replace(/\D/g, "")) || 0) }]);
  }
  const pairs = new Map();
  for (const p of run.paths) {
    const name = `${p.src} → ${p.dst}`;
    pairs.set(name, [...(pairs.get(name) ?? []), p]);
  }
  const colors = new Map();
  const rows = [...pairs.entries()].map(([name, list]) => ({ name, parts: list.map((p) => {
    if (!colors.has(p.path)) colors.set(p.path, FL.color(colors.size));
    return { name: p.path, value: p.packets, color: colors.get(p.path) };
  }) }));
  if (!up.size && !rows.length) return fig.empty("No path was counted.");
  const names = FL.flowNames(run);
  const draw = () => {
    fig.body.replaceChildren();
    if (up.size) FL.shares(fig, [...up.entries()].map(([name, parts]) => ({ name, parts })), { label: "use of uplinks by leaf", unit: "packets" });
    const wanted = store.state.flow === null ? null : names[store.state.flow];
    const shown = wanted && pairs.has(wanted) ? rows.filter((r) => r.name === wanted) : rows;
    fig.body.append(FL.el("h3", {}, `pairs of hosts (${shown.length === rows.length ? rows.length : `1 of ${rows.length}`})`));
    const box = FL.el("div", { class: "tall" });
    fig.body.append(box);
    FL.shares({ body: box }, shown.slice(0, 64), { label: "paths by pair of hosts", unit: "packets" });
    if (shown.length > 64) box.append(FL.el("p", { class: "how" }, `${shown.length - 64} more pairs; choose a flow to see one`));
  };
  draw();
  store.on(["flow"], draw);
};

FL.sections.reorder = (parent, run, store, extra = {}) => {
  const total = run.reorder.reduce((s, r) => s + r[1], 0);
  const fig = FL.figure(parent, { id: extra.id ?? "reorder", title: "Reorder distance", footer: run.footer,
    how: "How many packets behind the newest one a late packet arrived. Spraying makes it; a single path must not, except for packets sent again." });
  if (!total) return fig.empty("No packet arrived out of order.");
  const rows = [];
  for (const [distance, n] of run.reorder) {
    const low = distance <= 8 ? distance : 2 ** Math.floor(Math.log2(distance - 0.5)) + 1, high = distance <= 8 ? distance : 2 ** Math.ceil(Math.log2(distance));
    const name = low === high ? `${low}` : `${low}–${high}`, last = rows.at(-1);
    if (last?.name === name) last.value += n; else rows.push({ name, value: n });
  }
  FL.bars(fig, { rows, xLabel: "", label: "packets by reorder distance", note: `${FL.num(total)} packets arrived behind a later one, in distances of 1 to ${FL.num(run.reorder.at(-1)[0])} packets.` });
};

FL.sections.losses = (parent, run, store, extra = {}) => {
  const fig = FL.figure(parent, { id: extra.id ?? "losses", title: "Marks, drops, trims, retransmissions", footer: run.footer,
    how: "Where packets were marked, dropped or cut to their header, and which flows had to send again. A dash: this kernel cannot tell." });
  const ports = run.ports.filter((p) => p.marked || p.dropped || p.trimmed).sort((p, q) => (q.dropped ?? 0) - (p.dropped ?? 0) || (q.marked ?? 0) - (p.marked ?? 0));
  const names = FL.flowNames(run), f = run.flows, flows = new Map();
  f.flow.forEach((flow, i) => {
    const sum = flows.get(flow) ?? { name: names[flow], again: 0, ce: 0, timeouts: 0 };
    sum.again += f.retransmitted[i] ?? 0; sum.ce += f.ce[i] ?? 0; sum.timeouts += f.timeouts[i] ?? 0;
    flows.set(flow, sum);
  });
  const again = [...flows.values()].filter((r) => r.again || r.ce || r.timeouts).sort((p, q) => q.again - p.again || q.ce - p.ce);
  if (!ports.length && !again.length) return fig.empty("No packet was marked, dropped, trimmed or sent again.");
  const get = (key) => (r) => r[key];
  if (ports.length) fig.body.append(FL.barTable(ports.slice(0, 8), [{ name: "marked", get: get("marked"), color: "var(--hot1)" }, { name: "dropped", get: get("dropped"), color: "var(--hot2)" }, { name: "trimmed", get: get("trimmed"), color: "var(--c3)" }], { name: "port", get: get("port") }));
  if (ports.length > 8) fig.body.append(FL.el("p", { class: "how" }, `${ports.length - 8} more ports are in the table below.`));
  if (again.length) fig.body.append(FL.el("h3", {}, "by flow"), FL.barTable(again.slice(0, 8), [{ name: "arrived marked", get: get("ce"), color: "var(--hot1)" }, { name: "sent again", get: get("again"), color: "var(--hot2)" }, { name: "time-outs", get: get("timeouts"), color: "var(--c3)" }], { name: "flow", get: get("name") }));
};

FL.sections.cdfs = (parent, run, store, extra = {}) => {
  for (const [name, key, title, how, fmt, guide] of [
    ["fct", "fct_ns", "Completion times", "Share of transfers that finished within this time.", FL.time, null],
    ["slowdown", "slowdown", "Slowdown", "Completion time over that of the same transfer alone in the fabric.", (v) => `${FL.sig(v)}×`, 1]]) {
    const fig = FL.figure(parent, { id: `${extra.prefix ?? ""}${name}`, title, how, footer: run.footer });
    if (!run.cdf[key].length) { fig.empty("No transfer finished."); continue; }
    const draw = () => {
      const flow = store.state.flow, mine = flow === null ? [] : FL.cdfOf(run.flows[key].filter((_, i) => run.flows.flow[i] === flow));
      const holder = FL.el("div", {});
      fig.body.replaceChildren(holder);
      FL.cdf({ body: holder }, { points: mine.length ? mine : run.cdf[key], all: mine.length ? run.cdf[key] : null, xFmt: fmt, label: title, guide });
    };
    draw();
    store.on(["flow"], draw);
  }
};

FL.sections.tables = (parent, run, store) => {
  const ports = FL.figure(parent, { id: "ports", title: "Ports", wide: true, footer: run.footer, how: "Counted by the kernel over the whole run. Click a heading to sort, a row to follow that port." });
  const get = (key) => (p) => p[key];
  FL.table(ports, store, run.ports, [{ name: "port", get: get("port"), text: true, fmt: String }, { name: "Gbit/s", get: get("rate_gbps"), fmt: FL.plain }, { name: "peak", get: get("max_bytes"), fmt: FL.bytes },
    { name: "of limit", get: (p) => (p.max_bytes === null || !p.limit_bytes ? null : (100 * p.max_bytes) / p.limit_bytes), fmt: FL.pct, hot: (p) => p.max_bytes > 0.9 * p.limit_bytes },
    { name: "waiting", get: (p) => (p.max_bytes === null ? null : (p.max_bytes * 8) / p.rate_gbps), fmt: FL.time }, { name: "mean met", get: get("mean_bytes"), fmt: FL.bytes }, { name: "p99 met", get: get("p99_bytes"), fmt: FL.bytes },
    { name: "packets", get: get("tx_packets") }, { name: "marked", get: get("marked") }, { name: "dropped", get: get("dropped"), hot: (p) => p.dropped > 0 }, { name: "trimmed", get: get("trimmed") }],
    { key: "port", pick: get("port"), sort: 3, shown: 24 });
  const f = run.flows, rows = f.flow.map((_, i) => i), col = (key) => (i) => f[key][i];
  const flows = FL.figure(parent, { id: "flows", title: "Transfers in numbers", wide: true, footer: run.footer, how: f.total > rows.length ? `The slowest and an even choice: ${FL.num(rows.length)} of ${FL.num(f.total)} transfers.` : "One row a transfer; click one to follow its flow." });
  FL.table(flows, store, rows, [{ name: "flow", get: col("flow") }, { name: "step", get: col("step") }, { name: "from", get: col("src"), text: true, fmt: String }, { name: "to", get: col("dst"), text: true, fmt: String }, { name: "bytes", get: col("bytes"), fmt: FL.bytes },
    { name: "start", get: col("start_ns"), fmt: FL.time }, { name: "FCT", get: col("fct_ns"), fmt: FL.time }, { name: "ideal", get: col("ideal_ns"), fmt: FL.time }, { name: "slowdown", get: col("slowdown"), fmt: FL.plain }, { name: "sent", get: col("sent") },
    { name: "sent again", get: col("retransmitted"), hot: (i) => f.retransmitted[i] > 0 }, { name: "reordered", get: col("reordered") }, { name: "CE", get: col("ce") }, { name: "trimmed", get: col("trimmed") }, { name: "time-outs", get: col("timeouts"), hot: (i) => f.timeouts[i] > 0 }, { name: "paths", get: col("paths") }],
    { key: "flow", pick: (i) => f.flow[i], sort: 8, shown: 24 });
  if (!run.events.total) return;
  const events = FL.figure(parent, { id: "events", title: "Events", wide: true, footer: run.footer, how: run.events.total > run.events.rows.length ? `The first ${run.events.rows.length} of ${FL.num(run.events.total)}.` : null });
  events.body.append(FL.el("div", { class: "scroll tall" }, FL.el("table", {}, FL.el("thead", {}, FL.el("tr", {}, FL.el("th", {}, "time"), FL.el("th", { class: "text" }, "what"), FL.el("th", { class: "text" }, "details"))),
    FL.el("tbody", {}, ...run.events.rows.map((e) => FL.el("tr", {}, FL.el("td", {}, FL.time(e.time_ns ?? null)), FL.el("td", { class: "text" }, e.kind),
      FL.el("td", { class: "text wrap" }, Object.entries(e).filter(([k]) => !["time_ns", "kind"].includes(k)).map(([k, v]) => `${k} ${typeof v === "object" ? JSON.stringify(v) : v}`).join(", "))))))));
};
