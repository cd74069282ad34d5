// Verdict, headline cards, sortable tables.

FL.WORDS = { trusted: ["✓", "Trusted"], care: ["!", "Use with care"], untrusted: ["✕", "Do not trust"] };

FL.verdict = (parent, verdict) => {
  const [sign, word] = FL.WORDS[verdict.word] ?? ["?", verdict.word];
  const counts = {};
  for (const c of verdict.checks) counts[c.status] = (counts[c.status] ?? 0) + 1;
  const rows = verdict.checks.map((c) => FL.el("tr", {}, FL.el("td", {}, c.id), FL.el("td", { class: "text" }, c.name), FL.el("td", { class: `text ${c.status}` }, c.status),
    FL.el("td", {}, FL.plain(c.value)), FL.el("td", {}, FL.plain(c.limit)), FL.el("td", { class: "text wrap" }, c.reason ?? "")));
  parent.append(FL.el("section", { class: `verdict ${verdict.word}`, id: "verdict", role: "status" }, FL.el("strong", {}, `${sign} Verdict: ${word}`),
    verdict.reasons.length ? FL.el("ul", {}, ...verdict.reasons.map((r) => FL.el("li", {}, r))) : null,
    ...(verdict.remedies ?? []).map((r) => FL.el("p", {}, `What to do: ${r}`)),
    (verdict.notes ?? []).length ? FL.el("details", {}, FL.el("summary", {}, `${verdict.notes.length} note${verdict.notes.length === 1 ? "" : "s"}`), FL.el("ul", {}, ...verdict.notes.map((n) => FL.el("li", {}, n)))) : null,
    verdict.checks.length ? FL.el("details", {}, FL.el("summary", {}, `${verdict.checks.length} checks: ${Object.entries(counts).map(([k, n]) => `${n} ${k}`).join(", ")}`),
      FL.el("div", { class: "scroll" }, FL.el("table", {}, FL.el("thead", {}, FL.el("tr", {}, ...["id", "check", "status", "value", "limit", "why"].map((h, i) => FL.el("th", { class: [1, 2, 5].includes(i) ? "text" : null }, h)))), FL.el("tbody", {}, ...rows)))) : null));
};
FL.plain = (v) => (v === null || v === undefined ? "–" : typeof v === "number" ? FL.sig(v) : String(v));

FL.card = (label, value, note, { warn = false, meter = null, title = "" } = {}) => FL.el("div", { class: `card${warn ? " warn" : ""}`, title },
  FL.el("div", { class: "label" }, label), FL.el("div", { class: "value" }, value),
  meter === null ? null : FL.el("div", { class: "meter" }, FL.el("i", { style: `width:${Math.min(100, meter)}%` })), FL.el("div", { class: "note" }, note));

FL.fullest = (ports) => ports.filter((p) => p.max_bytes !== null && p.limit_bytes).reduce((best, p) => (!best || p.max_bytes / p.limit_bytes > best.max_bytes / best.limit_bytes ? p : best), null);

FL.cards = (parent, run) => {
  const s = run.summary, full = FL.fullest(run.ports), flows = s.flows, packets = s.packets, theory = s.theory, list = [];
  const unfinished = flows.count - flows.completed;
  list.push(unfinished ? FL.card("Completion", `${unfinished} of ${flows.count} unfinished`, `bound ${FL.time(FL.ns(theory.bound_us))}`, { warn: true })
    : FL.card("Completion time", FL.time(FL.ns(theory.time_us)), `bound ${FL.time(FL.ns(theory.bound_us))}, ${FL.plain(theory.ratio)} times the bound`, { warn: theory.ratio !== null && theory.ratio < 1, meter: theory.ratio ? 100 / theory.ratio : null, title: "from the first start to the last byte delivered; the bound is what no run can beat" }));
  if (s.collective) {
    const c = s.collective;
    list.push(FL.card("Bus bandwidth", `${FL.plain(c.busbw_gbps)} Gbit/s`, `algbw ${FL.plain(c.algbw_gbps)} × factor ${FL.plain(c.factor)} (bits, 10⁹)`, { title: "algbw = bytes / time; busbw compares with the line rate" }),
      FL.card("Wrong elements", FL.num(c.wrong), `${c.algorithm} ${c.name}, ${c.ranks} ranks, ${FL.bytes(c.bytes)}`, { warn: c.wrong > 0 }));
  } else list.push(FL.card("Goodput", `${FL.plain(flows.goodput_gbps)} Gbit/s`, "payload, all hosts together, first start to last byte"));
  if (full && !full.max_bytes) list.push(FL.card("Fullest port", "none", "no packet met another one waiting"));
  else if (full) list.push(FL.card("Fullest port", full.port, `peak ${FL.bytes(full.max_bytes)} of ${FL.bytes(full.limit_bytes)}, ${FL.time((full.max_bytes * 8) / full.rate_gbps)} of waiting`, { meter: (100 * full.max_bytes) / full.limit_bytes, warn: full.max_bytes > 0.9 * full.limit_bytes }));
  list.push(FL.card("Marked (CE)", FL.num(packets.marked), FL.markNote(run.ports, packets)));
  const own = run.ports.filter((p) => p.port.startsWith("host")).reduce((n, p) => n + (p.dropped ?? 0), 0) + (packets.refused_at_source ?? 0);
  list.push(FL.card("Dropped", FL.num(packets.dropped), `at hosts' own ports ${FL.num(own)}; trimmed ${FL.num(packets.trimmed)}`, { warn: packets.dropped > 0 }),
    FL.card("Retransmitted", FL.num(packets.retransmitted), `${packets.data ? FL.pct((100 * packets.retransmitted) / packets.data) : "–"} of ${FL.num(packets.data)} data packets; time-outs ${FL.num(packets.timeouts)}`, { warn: packets.retransmitted > 0.01 * (packets.data || 1) }));
  if (flows.fct_us) list.push(FL.card("FCT p99", FL.time(FL.ns(flows.fct_us.p99)), `p50 ${FL.time(FL.ns(flows.fct_us.p50))}; slowdown p99 ${FL.plain(flows.slowdown?.p99)}`, { title: "flow completion time; slowdown is against the same transfer alone in the fabric" }),
    FL.card("Fairness", FL.plain(flows.fairness), "first over last completion of a step; 1 is even", { meter: 100 * (flows.fairness ?? 0) }));
  parent.append(FL.el("section", { class: "cards", id: "cards" }, ...list));
};
FL.ns = (us) => (us === null || us === undefined ? null : us * 1000);
FL.markNote = (ports, packets) => {
  const marking = ports.filter((p) => p.kmin_bytes !== null && p.kmin_bytes !== undefined);
  if (!marking.length) return "no port marks";
  if (packets.marked) return `at ${marking.filter((p) => p.marked).length} ports above kmin ${FL.bytes(marking[0].kmin_bytes)}`;
  const top = marking.reduce((m, p) => ((p.max_bytes ?? 0) / p.kmin_bytes > (m.max_bytes ?? 0) / m.kmin_bytes ? p : m));
  return (top.max_bytes ?? 0) <= top.kmin_bytes ? `never reached: peak ${FL.bytes(top.max_bytes)} of kmin ${FL.bytes(top.kmin_bytes)}` : `none, though ${top.port} passed kmin`;
};

// columns: [{name, get(row), fmt, text, hot(row)}]; a click on a row selects it.
FL.table = (fig, store, rows, columns, { key, pick, shown = 60, sort = 0, down = true }) => {
  let by = sort, falling = down, all = false;
  const holder = FL.el("div", { class: "scroll tall" }), more = FL.el("div", { class: "legend" });
  fig.body.replaceChildren(holder, more);
  const draw = () => {
    const sorted = [...rows].sort((p, q) => {
      const a = columns[by].get(p), b = columns[by].get(q);
      const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : (a ?? -Infinity) - (b ?? -Infinity);
      return falling ? -order : order;
    });
    const chosen = store.state[key];
    if (chosen !== null) sorted.sort((p, q) => (pick(q) === chosen) - (pick(p) === chosen));
    const list = all ? sorted : sorted.slice(0, shown);
    const head = columns.map((c, i) => FL.el("th", { class: c.text ? "text" : null, "aria-sort": i === by ? (falling ? "descending" : "ascending") : null },
      FL.el("button", { type: "button", onclick: () => { falling = i === by ? !falling : !c.text; by = i; draw(); } }, c.name + (i === by ? (falling ? " ▾" : " ▴") : ""))));
    const body = list.map((row) => {
      const tr = FL.el("tr", { class: pick(row) === chosen ? "chosen" : null }, ...columns.map((c) => FL.el("td", { class: c.text ? "text" : c.hot?.(row) ? "hot" : null }, (c.fmt ?? FL.num)(c.get(row)))));
      tr.setAttribute("tabindex", "0");
      tr.addEventListener("click", () => store.toggle(key, pick(row)));
      tr.addEventListener("keydown", (e) => { if (e.key === "Enter") store.toggle(key, pick(row)); });
      return tr;
    });
    holder.replaceChildren(FL.el("table", {}, FL.el("thead", {}, FL.el("tr", {}, ...head)), FL.el("tbody", {}, ...body)));
    more.replaceChildren(...(rows.length > shown ? [FL.el("button", { type: "button", onclick: () => { all = !all; draw(); } }, all ? "show fewer" : `show all ${FL.num(rows.length)}`)] : []));
  };
  draw();
  store.on([key], draw);
};
