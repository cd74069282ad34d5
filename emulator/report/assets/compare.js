// The page of a comparison: the difference first, then each figure for every run side by side, on the same scales.

FL.linked = (stores) => {
  let busy = false;
  for (const store of stores) store.on(["t", "zoom"], (s) => {
    if (busy) return;
    busy = true;
    for (const other of stores) if (other !== store) other.set({ t: s.t, zoom: s.zoom });
    busy = false;
  });
};

FL.cell = (row, cell) => {
  const change = cell.change ? ` (${cell.change > 0 ? "+" : ""}${FL.sig(100 * cell.change)} %${cell.significant ? "*" : ""})` : "";
  const range = cell.n > 1 && cell.least !== cell.greatest ? `${cell.n} runs, ${FL.sig(cell.least)} to ${FL.sig(cell.greatest)}` : `${cell.n} run${cell.n === 1 ? "" : "s"}`;
  return FL.el("td", { class: cell.better === undefined ? null : cell.better ? "better" : "worse", title: `${range}${cell.p === undefined ? "" : `, p = ${cell.p}`}` },
    `${cell.better === undefined ? "" : cell.better ? "▲ " : "▼ "}${cell.text}${change}`);
};

FL.cdfMany = (fig, curves, xFmt, label) => FL.responsive(fig.body, (width) => {
  const height = 240, root = FL.canvas(width, height, label), xMax = Math.max(...curves.flatMap((c) => c.points.map((p) => p[0]))) * 1.04;
  const a = FL.axes(root, { width, height, top: 12, xMax, yMax: 1, xFmt, yFmt: (v) => FL.pct(v * 100) });
  for (const c of curves) {
    const path = FL.svg("path", { d: `M${a.x(c.points[0][0])},${a.bottom}` + c.points.map(([v, p]) => `H${a.x(v).toFixed(1)}V${a.y(p).toFixed(1)}`).join("") + `H${a.right}`, class: "series strong", stroke: c.color });
    root.append(FL.tip.attach(path, () => [c.name, `${c.points.length} points, ${xFmt(c.points[0][0])} to ${xFmt(c.points.at(-1)[0])}`]));
  }
  fig.body.replaceChildren(root, FL.el("div", { class: "legend" }, ...curves.map((c) => FL.el("span", { class: "key" }, FL.el("i", { style: `border-color:${c.color}` }), c.name))));
});

FL.comparePage = (data) => {
  const page = document.getElementById("page"), { runs, groups, metrics } = data;
  const end = Math.max(...runs.map((r) => r.end));
  const stores = runs.map((run) => Object.assign(FL.store({ t: FL.startTime(run), port: null, flow: null, zoom: null }), { names: FL.flowNames(run) }));
  FL.linked(stores);
  page.replaceChildren(FL.el("h1", {}, data.title), FL.el("ol", { class: "three", id: "headline" }, ...data.headline.map((h) => FL.el("li", {}, h))));
  const verdicts = FL.el("div", { class: "runs" });
  groups.forEach((g, i) => {
    const box = FL.el("div", {}, FL.el("h3", {}, g.label), FL.el("p", { class: "sub" }, FL.subtitle(runs[i].summary)));
    FL.verdict(box, runs[i].summary.verdict);
    box.querySelector("section").id = `verdict${i}`;
    if (g.verdicts.length > 1) box.append(FL.el("p", { class: "how" }, `verdicts of its ${g.verdicts.length} runs: ${g.verdicts.map((w) => FL.WORDS[w]?.[1] ?? w).join(", ")}; drawn is the middle one`));
    verdicts.append(box);
  });
  page.append(verdicts);
  const footer = groups.map((g, i) => `${g.label}: ${runs[i].footer}`).join(" | ");
  const table = FL.figure(page, { id: "differences", title: "Differences", wide: true, footer, how: `Medians over the repeats, change against ${groups[0].label}. ▲ better, ▼ worse; * differs with p < 0.05 (needs repeats). Hover for the range.` });
  table.body.append(FL.el("div", { class: "scroll" }, FL.el("table", {}, FL.el("thead", {}, FL.el("tr", {}, FL.el("th", {}, ""), ...groups.map((g) => FL.el("th", {}, g.runs.length > 1 ? `${g.label} (n=${g.runs.length})` : g.label)))),
    FL.el("tbody", {}, ...metrics.map((row) => FL.el("tr", {}, FL.el("td", {}, row.name), ...row.cells.map((c) => FL.cell(row, c))))))));
  if (Object.keys(data.differing).length) table.body.append(FL.el("details", {}, FL.el("summary", {}, `settings that differ: ${Object.keys(data.differing).length}`), FL.el("div", { class: "scroll" }, FL.el("table", {},
    FL.el("tbody", {}, ...Object.entries(data.differing).map(([k, values]) => FL.el("tr", {}, FL.el("td", {}, k), ...values.map((v) => FL.el("td", {}, v)))))))));
  const bar = FL.el("div", {});
  page.append(bar);
  const steps = Math.max(2, ...runs.map((r) => r.frames.t.length)), frames = { t: Array.from({ length: steps }, (_, i) => (end * i) / (steps - 1)) };
  stores[0].state.t = stores.reduce((t, s) => Math.max(t, s.state.t), 0);
  for (const s of stores.slice(1)) s.state.t = stores[0].state.t;
  FL.timeBar(bar, stores[0], frames, end);
  bar.replaceWith(...bar.childNodes);

  const peak = Math.max(...runs.flatMap((r) => Object.values(r.queues).flatMap((s) => s.v)).filter((v) => v !== null), 1);
  const high = (kind) => Math.max(1, ...runs.flatMap((r) => r.rates.flatMap((s) => s[kind]?.v ?? [])).filter((v) => v !== null));
  const rows = [["Queue depth", "queues", { yMax: peak, limit: 4 }], ["What congestion control did", "rates", { yMax: { rate: high("rate"), window: high("window") } }], ["Transfers", "gantt", {}], ["Backlog that packets met", "histogram", {}], ["The fabric", "fabric", {}], ["Path use", "paths", {}], ["Reorder distance", "reorder", {}]];
  for (const [title, name, extra] of rows) {
    page.append(FL.el("h3", {}, title));
    const line = FL.el("div", { class: "runs" });
    page.append(line);
    runs.forEach((run, i) => FL.sections[name](line, { ...run, end, footer: `${groups[i].label} · ${run.footer}` }, stores[i], { ...extra, id: `${name}${i}`, title: groups[i].label, how: "", wide: false }));
  }
  page.append(FL.el("h3", {}, "Completion"));
  const last = FL.el("div", { class: "runs" });
  page.append(last);
  for (const [key, title, fmt] of [["fct_ns", "Completion times", FL.time], ["slowdown", "Slowdown", (v) => `${FL.sig(v)}×`]]) {
    const curves = runs.map((r, i) => ({ name: groups[i].label, color: FL.color(i), points: r.cdf[key] })).filter((c) => c.points.length);
    const fig = FL.figure(last, { id: `cdf-${key}`, title, how: "Share of transfers not above this.", footer });
    if (curves.length) FL.cdfMany(fig, curves, fmt, title); else fig.empty("No transfer finished.");
  }
  document.body.dataset.ready = "yes";
};

FL.comparePage(JSON.parse(document.getElementById("data").textContent));
