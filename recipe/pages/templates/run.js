"use strict";
// Fills the page from its JSON: figures when they come into view, samples 50 at a time. Text of models goes into the
// document as text only (textContent), never as HTML.
(function () {
  const PAGE = 50;
  const byId = (id) => document.getElementById(id);
  const data = (name) => JSON.parse(byId("data-" + name).textContent);

  function element(tag, kind, text) {
    const made = document.createElement(tag);
    if (kind) made.className = kind;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function signed(value, digits) {
    return (value > 0 ? "+" : "") + value.toFixed(digits);
  }

  // Figures
  const figures = data("figures");
  const watched = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((one) => one.isIntersecting)) {
      watched.unobserve(entry.target);
      Bokeh.embed.embed_item(figures[entry.target.id], entry.target.id);
    }
  }, { rootMargin: "300px" });
  for (const id of Object.keys(figures)) if (id !== "any-metric") watched.observe(byId(id));

  // Samples
  const samples = data("samples");
  const FILTERS = [
    { key: "run", label: "run", of: (row) => samples.runs[row.run] },
    { key: "step", label: "update", of: (row) => row.step },
    { key: "skill", label: "skill", of: (row) => row.skill },
    { key: "verdict", label: "verdict", of: (row) => row.verdict },
    { key: "error", label: "error", of: (row) => row.error },
    { key: "guard", label: "guard", of: (row) => row.guard },
    { key: "credit", label: "credit", of: (row) => (row.pieces.some((piece) => piece[1] != null) ? "measured" : "none") },
  ];
  const chosen = {};
  let found = samples.rows;
  let search = "";

  function text(row) {
    return row.pieces.map((piece) => piece[0]).join("");
  }

  function select() {
    const asked = FILTERS.filter((one) => chosen[one.key]);
    found = samples.rows.filter((row) =>
      asked.every((one) => String(one.of(row)) === chosen[one.key]) &&
      (!search || text(row).toLowerCase().includes(search) ||
        samples.texts[row.prompt].toLowerCase().includes(search)));
    byId("list").replaceChildren();
    show();
  }

  function show() {
    const list = byId("list");
    const next = found.slice(list.childElementCount, list.childElementCount + PAGE);
    list.append(...next.map(card));
    const count = samples.rows.length.toLocaleString("en");
    byId("shown").textContent =
      `${list.childElementCount.toLocaleString("en")} of ${found.length.toLocaleString("en")} matching samples shown; ${count} on this page`;
    byId("more").hidden = list.childElementCount >= found.length;
  }

  function filter(one) {
    const values = [...new Set(samples.rows.map(one.of))];
    if (values.length < 2) return [];
    values.sort((a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b))));
    const label = element("label", "", one.label);
    const control = element("select");
    control.id = "filter-" + one.key;
    const all = element("option", "", "all");
    all.value = "";
    control.append(all, ...values.map((value) => {
      const option = element("option", "", String(value));
      option.value = String(value);
      return option;
    }));
    control.addEventListener("change", () => { chosen[one.key] = control.value; select(); });
    label.append(control);
    return [label];
  }

  function searchBox() {
    const label = element("label", "", "text");
    const box = element("input");
    box.type = "search";
    box.id = "filter-text";
    let waiting = 0;
    box.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => { search = box.value.toLowerCase(); select(); }, 200);
    });
    label.append(box);
    return label;
  }

  function card(row) {
    const made = element("article", "card sample");
    const chips = element("div", "chips");
    const chip = (kind, value) => chips.append(element("span", "chip " + kind, value));
    if (samples.runs.length > 1) chip("", samples.runs[row.run]);
    chip("", "update " + row.step);
    chip("", row.skill);
    chip(row.verdict, row.verdict);
    if (row.error !== "none") chip("", row.error);
    if (row.guard !== "none") chip("guard", "guard: " + row.guard);
    if (row.score !== null) chip("", "reward " + row.score.toFixed(2));
    if (row.passed !== null) chip("", Math.round(100 * row.passed) + "% of tests");
    const answer = element("div", "answer");
    const lines = element("pre");
    const detail = element("div", "step");
    detail.hidden = true;
    const largest = Math.max(0, ...row.pieces.map((piece) => Math.abs(piece[1] || 0)));
    let place = 0;
    lines.append(...row.pieces.map((piece) => shown(row, piece, piece.length > 1 ? place++ : -1, detail, largest)));
    answer.append(lines, detail);
    const pair = element("div", "pair");
    pair.append(element("pre", "prompt", samples.texts[row.prompt]), answer);
    made.append(chips, pair);
    if (samples.texts[row.tests]) {
      const tests = element("details");
      tests.append(element("summary", "", "reference"), element("pre", "", samples.texts[row.tests]));
      made.append(tests);
    }
    if (row.cause) made.append(element("div", "soft", "no credit: " + row.cause));
    return made;
  }

  function shown(row, piece, place, detail, largest) {
    if (piece.length === 1) return document.createTextNode(piece[0]);
    const mark = element("mark", "", piece[0]);
    const share = largest ? (piece[1] || 0) / largest : 0;
    if (share) mark.style.background = `rgb(${share > 0 ? "0 158 115" : "213 94 0"} / ${0.1 + 0.45 * Math.abs(share)})`;
    mark.tabIndex = 0;
    const open = () => {
      for (const other of mark.parentNode.querySelectorAll(".chosen")) other.classList.remove("chosen");
      mark.classList.add("chosen");
      explain(row, piece, place, detail);
    };
    mark.addEventListener("click", open);
    mark.addEventListener("keydown", (event) => { if (event.key === "Enter") open(); });
    return mark;
  }

  function verdict(share) {
    return share === 1 ? "passes" : share === 0 ? "fails" : share.toFixed(2);
  }

  const WHAT = { step: "this step changed", several: "several steps changed" };
  const SHOWN = 8, LINES = 60;

  // The replays that a step's credit comes from, as far as they are recorded: its own, the cuts before and after it.
  function replaysOf(row, place) {
    const all = row.replays || [], cuts = all.filter((one) => one.change === "cut");
    const starts = cuts.map((one) => one.at), before = Math.max(...starts.filter((at) => at <= place));
    const after = Math.min(...starts.filter((at) => at > place));
    return [
      ...all.filter((one) => one.change === "step" && one.at === place),
      ...cuts.filter((one) => one.at === before || one.at === after),
      ...all.filter((one) => one.change === "several"),
    ];
  }

  // The changed lines of a replay, and what the verifier gave it.
  function replayed(row, one) {
    const made = element("figure", "replay");
    const judged = one.score === null ? one.cause || "not judged"
      : row.passed === null ? "score " + one.score.toFixed(2) : `passes ${Math.round(100 * one.score)}% of the tests`;
    const what = one.change === "cut" ? `cut off from step ${one.at + 1} on` : WHAT[one.change];
    const each = [...one.tests].map((passed, index) => `${index + 1} ${passed === "1" ? "passes" : "fails"}`);
    made.append(element("figcaption", "soft", `replay, ${what}: ${judged}${each.length ? ` (${each.join(", ")})` : ""}`));
    const lines = element("pre");
    for (const [kind, sign, text] of [["wrong", "- ", samples.texts[one.without]], ["right", "+ ", samples.texts[one.instead]]])
      if (text) for (const line of text.split("\n").slice(0, LINES)) lines.append(element("span", kind, sign + line + "\n"));
    if (lines.childElementCount) made.append(lines);
    return made;
  }

  function explain(row, piece, place, detail) {
    detail.hidden = false;
    detail.replaceChildren();
    const credit = piece[1] === null ? "no credit measured" : "credit " + signed(piece[1], 3);
    detail.append(element("strong", "", credit));
    if (piece[2].length) {
      const whole = row.whole && row.whole.length === piece[2].length ? row.whole : [];
      detail.append(element("div", "soft", whole.length
        ? "each test with the answer as it is, and replayed with this step changed"
        : "in each test: +1 passes with this step only, -1 without it only, 0 is the same with and without"));
      const parts = element("div", "parts");
      piece[2].forEach((part, index) => {
        const kind = part > 0 ? "right" : part < 0 ? "wrong" : "", before = whole[index];
        const said = typeof before !== "number" ? signed(part, Number.isInteger(part) ? 0 : 2)
          : `${verdict(before)}, replayed ${verdict(before - part)}`;
        parts.append(element("span", "chip " + kind, `test ${index + 1}: ${said}`));
      });
      detail.append(parts);
    }
    const own = replaysOf(row, place);
    detail.append(...own.slice(0, SHOWN).map((one) => replayed(row, one)));
    if (own.length > SHOWN) detail.append(element("div", "soft", `and ${own.length - SHOWN} more replays`));
    const counts = Object.entries(row.counts || {}).map(([name, value]) => `${name.replace("_", " ")} ${value}`);
    if (counts.length) detail.append(element("div", "soft", "replays of this answer: " + counts.join(", ")));
  }

  if (samples.rows.length) {
    byId("filters").append(...FILTERS.flatMap(filter), searchBox());
    byId("more").addEventListener("click", show);
    show();
  }

  // All metrics
  const metrics = data("metrics");
  const names = [...new Set(metrics.flatMap((run) => Object.keys(run)))].sort();
  const control = byId("metric");
  control.append(...names.map((name) => {
    const option = element("option", "", name);
    option.value = name;
    return option;
  }));

  function plot() {
    const own = Bokeh.documents.find((one) => one.get_model_by_name("all metrics 0"));
    metrics.forEach((run, index) => {
      const [step, value] = run[control.value] || [[], []];
      own.get_model_by_name(`all metrics ${index}`).data = {
        step, value, name: step.map(() => samples.runs[index]), band: step.map(() => "-"),
      };
    });
    byId("any-metric").dataset.metric = control.value;
  }
  if (names.length) {
    control.value = names.includes("critic/score/mean") ? "critic/score/mean" : names[0];
    new IntersectionObserver((entries, own) => {
      if (!entries.some((one) => one.isIntersecting)) return;
      own.disconnect();
      Bokeh.embed.embed_item(figures["any-metric"], "any-metric").then(() => {
        plot();
        control.addEventListener("change", plot);
      });
    }, { rootMargin: "300px" }).observe(byId("any-metric"));
  } else {
    control.closest("section").textContent = "No metrics are recorded yet.";
  }
  // The page of a run under way, from the list of runs: renewed unless its reader has scrolled down.
  const seconds = Number(document.body.dataset.reload);
  if (seconds) setInterval(() => { if (window.scrollY < 300) location.reload(); }, 1000 * seconds);
  document.documentElement.dataset.ready = performance.now().toFixed(0); // ms since the navigation
})();
