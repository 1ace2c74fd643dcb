"use strict";
// Plots: each figure has a picture and the description it was made from. Vega draws it again when it comes into view,
// so that it answers the pointer. Its expressions are interpreted, not evaluated: the page's policy forbids `eval`.
page.embed = (plot, spec) =>
  window.vegaEmbed(plot, spec, {
    actions: false, renderer: "svg", ast: true, mode: "vega-lite", tooltip: { theme: "custom" },
  });

(() => {
  const draw = (figure) => {
    if (figure.dataset.live) return;
    figure.dataset.live = "yes";
    const spec = JSON.parse(figure.querySelector("script.spec").textContent);
    const plot = figure.querySelector(".plot");
    const place = page.make("div");
    page.embed(place, spec).then(() => plot.replaceChildren(place), (error) => console.error(error));
  };
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
  }, { rootMargin: "200px" });
  for (const figure of document.querySelectorAll(":not(#differences) > figure.chart")) seen.observe(figure);
})();
