"use strict";
// Shows the runs of the page's JSON, and asks for newer ones every few seconds. Names go into the document as text only
// (textContent), never as HTML.
(function () {
  const SECONDS = 4;
  const byId = (id) => document.getElementById(id);
  const chosen = new Set();
  let shown = "";
  let answer = JSON.parse(byId("data-runs").textContent);

  function element(tag, kind, text) {
    const made = document.createElement(tag);
    if (kind) made.className = kind;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  const share = (value) => (value == null ? "-" : (100 * value).toFixed(1) + "%");

  function age(seconds) {
    if (seconds < 90) return Math.max(0, Math.round(seconds)) + " s ago";
    if (seconds < 5400) return Math.round(seconds / 60) + " min ago";
    if (seconds < 129600) return Math.round(seconds / 3600) + " h ago";
    return Math.round(seconds / 86400) + " days ago";
  }

  function box(run) {
    const made = element("input");
    Object.assign(made, { type: "checkbox", name: "run", value: run.id, checked: chosen.has(run.id) });
    made.setAttribute("aria-label", "compare " + run.name);
    made.addEventListener("change", () => {
      if (made.checked) chosen.add(run.id); else chosen.delete(run.id);
      buttons();
    });
    return made;
  }

  function row(run) {
    const made = element("tr");
    const cell = (kind, ...content) => {
      const one = element("td", kind);
      one.append(...content);
      made.append(one);
      return one;
    };
    cell("", box(run));
    const link = element("a", "", run.name);
    link.href = "/page?run=" + encodeURIComponent(run.id);
    cell("", element("span", "soft", run.experiment ? run.experiment + " / " : ""), link,
      element("div", "soft", run.note));
    cell("", element("span", "chip " + ({ stopped: "not", unreadable: "wrong" }[run.state] || run.state), run.state));
    cell("number", run.steps == null ? String(run.step) : run.step + " of " + run.steps);
    cell("number", share(run.accuracy));
    cell("number", run.reward == null ? "-" : run.reward.toFixed(3));
    cell("number", share(run.validation));
    cell("number age").dataset.wrote = run.wrote;
    return made;
  }

  function buttons() {
    byId("compare").disabled = chosen.size < 1 || chosen.size > answer.most;
    byId("status").textContent = chosen.size > answer.most ? "at most " + answer.most + " runs on one page" : "";
  }

  function show() {
    const asked = byId("filter").value.toLowerCase();
    const runs = answer.runs.filter((run) =>
      [run.experiment + " / " + run.name, run.state].some((text) => text.toLowerCase().includes(asked)));
    const now = JSON.stringify(runs);
    if (now !== shown) byId("runs").replaceChildren(...runs.map(row));
    shown = now;
    for (const one of document.querySelectorAll(".age")) one.textContent = age(answer.now - Number(one.dataset.wrote));
    const known = new Set(answer.runs.map((run) => run.id));
    for (const id of chosen) if (!known.has(id)) chosen.delete(id);
    byId("count").textContent = runs.length + " of " + answer.runs.length + " shown";
    byId("empty").hidden = answer.runs.length > 0;
    buttons();
  }

  async function renew() {
    try {
      if (!document.hidden) {
        const response = await fetch("/runs.json");
        if (!response.ok) throw new Error("status " + response.status);
        answer = await response.json();
        show();
      }
    } catch (error) {
      byId("status").textContent = "no answer from recipe.report serve: " + error.message;
    }
    setTimeout(renew, 1000 * SECONDS);
  }

  byId("filter").addEventListener("input", show);
  show();
  setTimeout(renew, 1000 * SECONDS);
  document.documentElement.dataset.ready = performance.now().toFixed(0);
})();
