// The bar that moves the time and shows the filters, and the keys of the page.

FL.timeBar = (parent, store, frames, end) => {
  const count = frames.t.length - 1;
  const slider = FL.el("input", { type: "range", min: 0, max: count - 1, step: 1, id: "time", "aria-label": "time in the run", oninput: () => { stop(); store.set({ t: middle(Number(slider.value)) }); } });
  const out = FL.el("output", { for: "time" }), play = FL.el("button", { type: "button", id: "play", "aria-label": "play" }, "▶ play");
  const chips = FL.el("span", { id: "chips" });
  const middle = (f) => (frames.t[f] + frames.t[f + 1]) / 2;
  let timer = null;
  const stop = () => { clearInterval(timer); timer = null; play.textContent = "▶ play"; };
  const start = () => {
    play.textContent = "❚❚ pause";
    let f = FL.frameAt(frames, store.state.t);
    if (f >= count - 1) f = -1;
    timer = setInterval(() => { f += 1; store.set({ t: middle(f) }); if (f >= count - 1) stop(); }, 60);
  };
  const toggle = () => (timer ? stop() : start());
  play.addEventListener("click", toggle);
  const chip = (key, name) => (store.state[key] === null ? [] : [FL.el("button", { type: "button", class: "chip", "aria-label": `show every ${key} again`, onclick: () => store.set({ [key]: null }) }, `${name(store.state[key])} ✕`)]);
  const update = () => {
    slider.value = FL.frameAt(frames, store.state.t);
    out.textContent = `${FL.time(store.state.t)} of ${FL.time(end)}`;
    slider.setAttribute("aria-valuetext", FL.time(store.state.t));
  };
  const filters = () => chips.replaceChildren(...chip("port", (p) => `port ${p}`), ...chip("flow", (f) => store.names[f] ?? `flow ${f}`), ...(store.state.zoom ? [FL.el("button", { type: "button", class: "chip", onclick: () => store.set({ zoom: null }) }, "zoomed ✕")] : []));
  parent.append(FL.el("div", { class: "bar", role: "toolbar", "aria-label": "time and filters" }, play, slider, out, chips));
  store.on(["t"], update);
  store.on(["port", "flow", "zoom"], filters);
  update();
  document.addEventListener("keydown", (e) => {
    if (e.target.closest("input, select, button, textarea, [role=button], tr[tabindex]") && e.key !== "Escape") return;
    if (e.key === "Escape") store.set({ port: null, flow: null, zoom: null });
    else if (e.key === " ") { e.preventDefault(); toggle(); }
    else if ((e.key === "ArrowRight" || e.key === "ArrowLeft") && !e.defaultPrevented) {
      e.preventDefault();
      stop();
      store.set({ t: middle(Math.max(0, Math.min(count - 1, FL.frameAt(frames, store.state.t) + (e.key === "ArrowRight" ? 1 : -1)))) });
    }
  });
};

// Where the picture is worth looking at first: the fullest moment of the fullest queue.
FL.startTime = (run) => {
  const queue = run.frames.queue[FL.fullest(run.ports)?.port];
  const at = queue ? queue.reduce((best, v, i) => (v !== null && v > (queue[best] ?? -1) ? i : best), 0) : 0;
  return (run.frames.t[at] + run.frames.t[at + 1]) / 2;
};

FL.subtitle = (s) => {
  const c = s.clock, t = s.transport, f = s.fabric;
  return `${f.hosts} hosts, ${f.leaves} leaves, ${f.spines} spines, ${f.links} links · ${t.kind}, congestion control ${t.cc}, MTU ${t.mtu} B · ${c.mode} clock, TDF ${c.tdf}, seed ${s.seed}${c.wall_s === null || c.wall_s === undefined ? "" : `, ${c.wall_s} s of wall time`} · run ${s.run_id}`;
};
