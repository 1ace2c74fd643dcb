"use strict";
// Plots: each figure has a picture and the description it was made from. Vega draws it again when it comes into view, as
// wide as its place, so that it answers the pointer. Its expressions are interpreted: the page's policy forbids `eval`.
page.draw = async (plot, spec) => {
  const place = page.make("div");
  const fitted = { ...structuredClone(spec), width: plot.clientWidth || spec.width, autosize: { type: "fit-x", contains: "padding" } };
  const { view } = await window.vegaEmbed(place, fitted, {
    actions: false, renderer: "svg", ast: true, mode: "vega-lite", tooltip: { theme: "custom" },
  });
  plot.replaceChildren(place);
  return view;
};

(() => {
  const draw = (figure) => {
    seen.unobserve(figure);
    const spec = JSON.parse(figure.querySelector("script.spec").textContent);
    page.draw(figure.querySelector(".plot"), spec).catch(console.error);
  };
  const seen = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => draw(entry.target)),
    { rootMargin: "200px" },
  );
  for (const figure of document.querySelectorAll(":not(#differences) > figure.chart")) seen.observe(figure);
})();
