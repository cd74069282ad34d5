// The page of one run: heading, verdict, numbers, time bar, figures.

FL.runPage = (run) => {
  const page = document.getElementById("page"), store = FL.store({ t: FL.startTime(run), port: null, flow: null, zoom: null });
  store.names = FL.flowNames(run);
  page.replaceChildren(FL.el("h1", {}, run.title), FL.el("p", { class: "sub" }, FL.subtitle(run.summary)));
  FL.verdict(page, run.summary.verdict);
  FL.cards(page, run);
  FL.timeBar(page, store, run.frames, run.end);
  const grid = FL.el("div", { class: "grid" });
  page.append(grid);
  for (const name of ["fabric", "queues", "rates", "gantt", "histogram", "paths", "cdfs", "losses", "reorder", "tables"]) FL.sections[name](grid, run, store);
  document.body.dataset.ready = "yes";
  FL.current = store;
};

FL.runPage(JSON.parse(document.getElementById("data").textContent));
