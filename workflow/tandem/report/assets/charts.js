"use strict";
// Plots: each figure has a picture and the description it was made from. Vega draws it again when it comes into view,
// so that it answers the pointer. Its expressions are interpreted, not evaluated: the page's policy forbids `eval`.
page.embed = (plot, spec) =>
  window.vegaEmbed(plot, spec, {
    actions: false, renderer: "svg", ast: true, mode: "vega-lite", tooltip: { theme: "custom" },
  });

(() => {
  const draw = (figure) => {
    seen.unobserve(figure);
    const place = page.make("div");
    const spec = JSON.parse(figure.querySelector("script.spec").textContent);
    page.embed(place, spec).then(() => figure.querySelector(".plot").replaceChildren(place)).catch(console.error);
  };
  const seen = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => draw(entry.target)),
    { rootMargin: "200px" },
  );
  for (const figure of document.querySelectorAll(":not(#differences) > figure.chart")) seen.observe(figure);
})();
