/* One script for all figures: states chosen by a slider, a list or a click; lines that light up together; pairs; predictions.
   Everything it needs stands in the page; nothing is fetched. */
(() => {
  "use strict";
  const all = (root, selector) => [...root.querySelectorAll(selector)];

  function start(figure) {
    if (figure.dataset.ready) return;
    figure.dataset.ready = "yes";
    if (figure.classList.contains("mp-predict")) return predict(figure);
    const { states, start: first, pairs } = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
    const named = new Map();
    for (const e of all(figure, "[data-name]")) named.set(e.dataset.name, [...(named.get(e.dataset.name) || []), e]);
    const slots = all(figure, "[data-slot]");
    const control = figure.querySelector(".mp-control");
    const range = figure.querySelector("input[type=range]"), select = figure.querySelector("select"), output = figure.querySelector("output");
    let now = first, marked = [];

    function mark(state) {
      for (const [e, kind] of marked) e.classList.remove(kind);
      marked = [];
      for (const [kind, names] of Object.entries(state.marks))
        for (const name of names) for (const e of named.get(name) || []) { e.classList.add(kind); marked.push([e, kind]); }
    }
    for (const [kind, names] of Object.entries(states[first].marks)) for (const name of names) for (const e of named.get(name) || []) marked.push([e, kind]);

    function show(k) {
      now = Math.max(0, Math.min(states.length - 1, k));
      const state = states[now];
      mark(state);
      for (const slot of slots) slot.textContent = state.slots[slot.dataset.slot] || "";
      if (range) { range.value = now; range.setAttribute("aria-valuetext", state.label); }
      if (select) select.value = now;
      if (output) output.textContent = state.label;
      figure.dataset.state = now;
      for (const e of all(figure, ".mp-line.now")) reveal(e);
    }
    if (control) control.hidden = false;
    if (range) range.addEventListener("input", () => show(+range.value));
    if (select) select.addEventListener("change", () => show(+select.value));
    for (const b of all(figure, "[data-move]")) b.addEventListener("click", () => show(now + +b.dataset.move));

    /* lines that belong together: sought when the first of them is pointed at */
    let byLink = null;
    function linked() {
      if (byLink) return byLink;
      byLink = new Map();
      for (const pane of all(figure, "pre")) unpack(pane);
      for (const e of all(figure, "[data-links]")) for (const name of e.dataset.links.split(" ")) { if (!byLink.has(name)) byLink.set(name, []); byLink.get(name).push(e); }
      return byLink;
    }
    let lit = [];
    function light(e) {
      const byLink = linked();
      for (const other of lit) other.classList.remove("lit");
      lit = [e, ...new Set((e.dataset.lights || e.dataset.links).split(" ").flatMap((name) => byLink.get(name) || []))];
      const panes = new Set([e.closest("pre")]);
      for (const other of lit) {
        other.classList.add("lit");
        const pane = other.closest("pre");
        if (!panes.has(pane)) { panes.add(pane); reveal(other); }
      }
    }
    let over = null;
    figure.addEventListener("pointerover", (event) => { const e = event.target.closest("[data-links]"); if (e && e !== over) light(over = e); });

    /* a click or Enter on a line */
    let picked = [];
    function act(e) {
      if (e.dataset.goto !== undefined) show(+e.dataset.goto);
      if (e.dataset.links) light(e);
      if (e.dataset.pick) pick(e);
    }
    figure.addEventListener("click", (event) => { const e = event.target.closest("[data-goto],[data-links],[data-pick]"); if (e) act(e); });
    function pick(e) {
      if (picked.length === 2) { for (const p of picked) p.classList.remove("picked"); picked = []; }
      if (picked.includes(e)) return;
      picked.push(e);
      e.classList.add("picked");
      const said = figure.querySelector(".mp-said");
      const names = picked.map((p) => p.dataset.pick);
      said.textContent = picked.length < 2 ? `${names[0]} and …` : pairs[names.join("|")] || pairs[names.reverse().join("|")] || "";
    }

    /* the keyboard: arrows walk through the lines of a pane, Enter acts */
    for (const pane of all(figure, "pre, svg")) {
      if (!pane.querySelector("[data-links],[data-goto],[data-pick]")) continue;
      let at = -1, lines = null;
      pane.addEventListener("keydown", (event) => {
        const move = { ArrowDown: 1, ArrowUp: -1, ArrowRight: pane.matches("svg") ? 1 : 0, ArrowLeft: pane.matches("svg") ? -1 : 0 }[event.key];
        if (!lines) { unpack(pane); lines = all(pane, "[data-links],[data-goto],[data-pick]"); }
        if (move) {
          if (at >= 0) lines[at].classList.remove("cursor");
          do at = (at + move + lines.length) % lines.length; while (lines[at].classList.contains("off"));
          lines[at].classList.add("cursor");
          reveal(lines[at]);
          if (lines[at].dataset.links) light(lines[at]);
        } else if ((event.key === "Enter" || event.key === " ") && at >= 0) act(lines[at]);
        else return;
        event.preventDefault();
      });
    }
    figure.mpShow = show;
  }

  /* the rest of a long pane, which stands as text in the page */
  function unpack(pane) {
    const text = pane.querySelector('script[type="text/html"]');
    if (!text) return;
    const rest = document.createElement("template");
    rest.innerHTML = text.textContent;
    text.replaceWith(rest.content);
  }
  const idle = window.requestIdleCallback || ((work) => setTimeout(work, 50));
  function unpackAll() { for (const text of all(document, 'pre > script[type="text/html"]')) unpack(text.parentNode); }
  function unpackNext() {
    const text = document.querySelector('pre > script[type="text/html"]');
    if (!text) return;
    unpack(text.parentNode);
    idle(unpackNext);
  }
  addEventListener("beforeprint", unpackAll);
  addEventListener("load", () => idle(unpackNext));

  /* scroll a line's own pane, never the page */
  function reveal(e) {
    const pane = e.closest("pre");
    if (!pane) return;
    const top = e.offsetTop - pane.offsetTop;
    if (top < pane.scrollTop || top + e.offsetHeight > pane.scrollTop + pane.clientHeight) pane.scrollTop = Math.max(0, top - pane.clientHeight / 3);
  }

  function predict(figure) {
    const form = figure.querySelector("form"), work = figure.querySelector("details"), said = figure.querySelector(".mp-said");
    form.hidden = false;
    work.hidden = true;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const given = form.elements.guess.value.trim();
      if (!given) return;
      const right = given === figure.dataset.answer || (given !== "" && Number(given) === Number(figure.dataset.answer));
      said.textContent = right ? "Yes." : "Not quite. The work is below.";
      figure.dataset.right = right;
      work.hidden = false;
    });
  }

  const run = () => all(document, "[data-figure]").forEach(start);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", run); else run();
})();
