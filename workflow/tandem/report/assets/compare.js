"use strict";
// Two systems, query by query: counts, the differences as a plot, the list of queries, and what both found for one.
(() => {
  const { $, make } = page;
  const data = JSON.parse($("data").textContent);
  const [a, b, measure, outcome, order, search] = ["system-a", "system-b", "measure", "outcome", "order", "search"].map($);
  const list = $("queries");
  const LISTED = 500; // queries in the list at once
  let selected = -1;
  let listed = [];

  const fillSelect = (select, names, chosen) => {
    select.replaceChildren(...names.map((name, at) => make("option", { value: at, textContent: name })));
    select.value = chosen;
  };
  const difference = (query) => {
    const at = Number(measure.value);
    return query.values[a.value][at] - query.values[b.value][at];
  };
  const outcomeOf = (query) => {
    const d = difference(query);
    return d > 0 ? "win" : d < 0 ? "loss" : "tie";
  };
  const matches = (query, words) => {
    const text = `${query.id} ${query.text}`.toLowerCase();
    if (!words.every((word) => text.includes(word))) return false;
    const at = Number(measure.value);
    if (outcome.value === "miss") return query.values[a.value][at] === 0 && query.values[b.value][at] === 0;
    return outcome.value === "all" || outcome.value === outcomeOf(query);
  };

  // ---- counts and the plot -------------------------------------------------------------------------------------------
  const figure = $("differences")?.querySelector("figure");
  const spec = figure && JSON.parse(figure.querySelector("script.spec").textContent);
  let drawing = Promise.resolve();

  const redraw = (won, lost) => {
    if (!figure) return;
    const [nameA, nameB, named] = [data.systems[a.value], data.systems[b.value], data.measures[measure.value]];
    const falling = data.queries.map(difference).sort((x, y) => y - x);
    const steps = [...falling, falling[falling.length - 1]]; // the last one again, to end its step
    const points = steps.map((value, at) => ({ before: at, won: Math.max(value, 0), lost: Math.min(value, 0) }));
    spec.datasets = { [Object.keys(spec.datasets)[0]]: points };
    for (const layer of spec.layer) layer.encoding.y.title = `${named}, A − B`;
    figure.querySelector("figcaption").textContent = `${nameA} (A) against ${nameB} (B): A is better above 0, B below`;
    figure.querySelector(".numbers")?.remove(); // they are of the pair that the page was made with
    const plot = figure.querySelector(".plot");
    plot.setAttribute("aria-label", `Differences of ${named} in falling order: A better on ${won} queries, B on ${lost}`);
    const place = make("div");
    const drawn = structuredClone(spec);
    drawing = drawing.then(() => page.embed(place, drawn)).then(() => plot.replaceChildren(place), (error) => console.error(error));
  };

  const count = () => {
    const tally = { win: 0, loss: 0, tie: 0 };
    for (const query of data.queries) tally[outcomeOf(query)] += 1;
    for (const [name, number] of Object.entries(tally)) $(`count-${name}`).textContent = number.toLocaleString("en");
    redraw(tally.win, tally.loss);
  };

  // ---- one query -----------------------------------------------------------------------------------------------------
  const passageBox = (index, rank, relevant) => {
    const [id, title, text] = data.passages[index];
    const head = make("header", {}, rank ? make("b", { textContent: rank }) : "", make("span", { className: "code", textContent: id }));
    if (relevant) head.append(make("span", { className: "tag", textContent: "✓ relevant" }));
    const body = make("p", {}, title ? make("strong", { textContent: `${title} ` }) : "", text);
    const box = make("article", { className: relevant ? "passage relevant" : "passage", "aria-label": `${rank ? `rank ${rank}, ` : ""}${id}` }, head, body);
    const more = make("button", { type: "button", textContent: "more", "aria-expanded": "false" });
    more.addEventListener("click", () => {
      const open = box.classList.toggle("open");
      more.textContent = open ? "less" : "more";
      more.setAttribute("aria-expanded", open);
    });
    box.append(more);
    return box;
  };

  const worth = (query, system) => data.measures.map((name, at) => `${name} ${query.values[system][at].toFixed(3)}`).join(" · ");

  const side = (query, system) => {
    const boxes = (query.top?.[system] ?? []).map((index, at) => passageBox(index, at + 1, query.relevant.includes(index)));
    const empty = !query.top || boxes.length ? [] : [make("p", { className: "quiet", textContent: "No passage was returned." })];
    return make("div", {}, make("h4", { textContent: data.systems[system] }), make("p", { className: "quiet", textContent: worth(query, system) }), ...boxes, ...empty);
  };

  const showDetail = () => {
    const query = data.queries[selected];
    if (!query) return $("detail").replaceChildren(make("p", { className: "quiet", textContent: "No query is like this." }));
    const known = query.top ? ` · ${query.positives} relevant` : " · its passages are not part of this page";
    const parts = [
      make("h3", { textContent: query.text }),
      make("div", { className: "quiet" }, make("span", { className: "code", textContent: query.id }), known),
      make("div", { className: "sides" }, side(query, a.value), side(query, b.value)),
    ];
    if (query.top) {
      const seen = new Set([...query.top[a.value], ...query.top[b.value]]);
      const unseen = query.relevant.filter((index) => !seen.has(index));
      if (unseen.length) parts.push(make("h4", { textContent: "Relevant, but in neither top ten" }), ...unseen.map((i) => passageBox(i, 0, true)));
    }
    $("detail").replaceChildren(...parts);
    for (const text of $("detail").querySelectorAll(".passage p")) {
      if (text.scrollHeight <= text.clientHeight + 1) text.nextElementSibling.remove(); // nothing more to show
    }
  };

  // ---- the list ------------------------------------------------------------------------------------------------------
  // Scrolls the list only: scrollIntoView would move the page too.
  const revealIn = (box, item) => {
    const [outer, inner] = [box.getBoundingClientRect(), item.getBoundingClientRect()];
    if (inner.top < outer.top) box.scrollTop -= outer.top - inner.top;
    if (inner.bottom > outer.bottom) box.scrollTop += inner.bottom - outer.bottom;
  };

  const select = (index, reveal) => {
    selected = index;
    list.removeAttribute("aria-activedescendant");
    for (const option of list.children) {
      const chosen = Number(option.dataset.query) === index;
      option.setAttribute("aria-selected", chosen);
      if (!chosen) continue;
      list.setAttribute("aria-activedescendant", option.id);
      if (reveal) revealIn(list, option);
    }
    showDetail();
  };

  const option = (index) => {
    const query = data.queries[index];
    const [x, y] = [a.value, b.value].map((s) => query.values[s][Number(measure.value)].toFixed(2));
    const [sign, meaning] = { win: ["▲", "A better"], loss: ["▼", "B better"], tie: ["=", "equal"] }[outcomeOf(query)];
    const mark = make("span", { className: outcomeOf(query), title: meaning, "aria-label": meaning, role: "img", textContent: sign });
    const item = make("div", { role: "option", id: `query-${index}` }, query.text, make("small", {}, mark, ` ${x} against ${y}`));
    item.dataset.query = index;
    item.addEventListener("click", () => select(index, false));
    return item;
  };

  const refresh = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    listed = [...data.queries.keys()].filter((index) => matches(data.queries[index], words));
    const sign = { won: -1, lost: 1 }[order.value];
    if (sign) listed.sort((x, y) => sign * (difference(data.queries[x]) - difference(data.queries[y])));
    const found = listed.length;
    listed = listed.slice(0, LISTED);
    list.replaceChildren(...listed.map(option));
    $("count").textContent = `${found.toLocaleString("en")} ${found === 1 ? "query" : "queries"}${found > LISTED ? `, the first ${LISTED} listed` : " listed"}.`;
    select(listed.includes(selected) ? selected : (listed[0] ?? -1), true);
  };

  list.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[event.key];
    if (!step || !listed.length) return;
    event.preventDefault();
    select(listed[Math.min(listed.length - 1, Math.max(0, listed.indexOf(selected) + step))], true);
  });
  for (const control of [a, b, measure]) control.addEventListener("change", () => { count(); refresh(); });
  for (const control of [outcome, order]) control.addEventListener("change", refresh);
  search.addEventListener("input", refresh);

  fillSelect(a, data.systems, Math.min(1, data.systems.length - 1));
  fillSelect(b, data.systems, 0);
  fillSelect(measure, data.measures, 0);
  count();
  refresh();
})();
