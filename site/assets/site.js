/* What the theme leaves out for screen readers and keyboards. */
(() => {
  const mend = () => {
    document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
    for (const e of document.querySelectorAll(".md-typeset__scrollwrap, .highlight pre > code")) if (e.scrollWidth > e.clientWidth) { e.tabIndex = 0; e.setAttribute("role", "region"); e.setAttribute("aria-label", "scrolls sideways"); }
  };
  mend();
  addEventListener("load", () => requestAnimationFrame(mend));
})();
