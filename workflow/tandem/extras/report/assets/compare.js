"use strict";
// Two systems, query by query: counts, the differences as a plot, the list of queries, and what both found for one.
(() => {
  const { $, make } = page;
  const data = JSON.parse($("data").textContent);
  const controls = ["system-a", "system-b", "measure", "outcome", "search"].map($);
  const [a, b, measure, outcome, search] = controls;
  const list = $("queries");
  const LISTED = 500; // queries in the list at once
  let selected = -1;
  let listed = [];

  const difference = (query) => query.values[a.value][measure.value] - query.values[b.value][measure.value];
  const outcomeOf = (query) => ({ 1: "win", "-1": "loss", 0: "tie" })[Math.sign(difference(query))];
  const matches = (query, words) => {
    const text = `${query.id} ${query.text}`.toLowerCase();
    if (!words.every((word) => text.includes(word))) return false;
    if (outcome.value === "miss") return [a, b].every((system) => query.values[system.value][measure.value] === 0);
    return outcome.value === "all" || outcome.value === outcomeOf(query);
  };

  // ---- counts and the plot -------------------------------------------------------------------------------------------
  const figure = $("differences")?.querySelector("figure");
  const spec = figure && JSON.parse(figure.querySelector("script.spec").textContent);
  let drawing = Promise.resolve();

  const redraw = (won, lost) => {
    if (!figure) return;
    const [nameA, nameB, named] = [data.systems[a.value], data.systems[b.value], data.measures[measure.value]];
    spec.data = { values: data.queries.map((query, index) => ({ difference: difference(query), query: query.text, index })) };
    spec.encoding.y.title = `${named}, A − B`;
    figure.querySelector("figcaption").textContent = `${nameA} (A) against ${nameB} (B): A is better above 0, B below`;
    figure.querySelector(".numbers")?.remove(); // they are of the pair that the page was made with
    const plot = figure.querySelector(".plot");
    plot.setAttribute("aria-label", `Differences of ${named} in falling order: A better on ${won} queries, B on ${lost}`);
    drawing = drawing.then(() => page.draw(plot, spec)).then((view) => {
      view.addEventListener("click", (_, item) => item?.datum?.index >= 0 && open(item.datum.index, true));
    }).catch(console.error);
  };

  const count = () => {
    const tally = { win: 0, loss: 0, tie: 0 };
    for (const query of data.queries) tally[outcomeOf(query)] += 1;
    for (const [name, number] of Object.entries(tally)) $(`count-${name}`).textContent = number.toLocaleString("en");
    redraw(tally.win, tally.loss);
  };

  // ---- one query -----------------------------------------------------------------------------------------------------
  // A text with the query's words marked.
  const marked = (text, query) => {
    const words = new Set(query.text.toLowerCase().match(/[\p{L}\p{N}]{3,}/gu));
    return text.split(/([\p{L}\p{N}]+)/u).map((part) => (words.has(part.toLowerCase()) ? make("mark", {}, part) : part));
  };

  const passageBox = (query, index, rank) => {
    const [id, title, text] = data.passages[index];
    const relevant = query.relevant.includes(index);
    const head = make("header", {}, rank ? make("b", {}, rank) : "", make("span", { className: "code" }, id));
    if (relevant) head.append(make("span", { className: "tag" }, "✓ relevant"));
    const body = make("details", {}, make("summary", {}, ...marked(title || text.slice(0, 60), query)), make("p", {}, ...marked(text, query)));
    body.open = rank <= 3;
    return make("article", { className: relevant ? "passage relevant" : "passage" }, head, body);
  };

  const side = (query, system) => {
    const boxes = (query.top?.[system] ?? []).map((index, at) => passageBox(query, index, at + 1));
    const empty = query.top && !boxes.length ? [make("p", { className: "quiet" }, "No passage was returned.")] : [];
    const worth = data.measures.map((name, at) => `${name} ${query.values[system][at].toFixed(3)}`).join(" · ");
    return make("div", {}, make("h4", {}, data.systems[system]), make("p", { className: "quiet" }, worth), ...boxes, ...empty);
  };

  // How ranks move from A to B: relevant passages in colour, others of both top tens in grey.
  const showMovement = (query, figure) => {
    const known = (system, index) => query.ranks[system][query.relevant.indexOf(index)] ?? query.top[system].indexOf(index) + 1;
    const others = query.top[a.value].filter((index) => query.top[b.value].includes(index) && !query.relevant.includes(index));
    const values = [...others, ...query.relevant].map((index) => {
      const [rankA, rankB] = [a, b].map((system) => known(system.value, index));
      const [A, B] = [rankA || data.none, rankB || data.none];
      const colour = { 1: "var(--good)", "-1": "var(--bad)", 0: "var(--accent)" }[Math.sign(B - A)];
      const text = `${data.passages[index][0]}: ${rankA || "none"} in A, ${rankB || "none"} in B`;
      const relevant = query.relevant.includes(index);
      return { A, B, text, colour: relevant ? colour : "var(--quiet)", opacity: relevant ? 1 : 0.3 };
    });
    const label = `Ranks of relevant passages. ${values.slice(others.length).map(({ text }) => text).join("; ")}`;
    const plot = make("div", { className: "plot", role: "img", "aria-label": label });
    const caption = "Ranks of relevant passages: green if higher in A, red if higher in B; grey: others of both top tens";
    figure.replaceChildren(make("figcaption", {}, caption), plot);
    page.draw(plot, { ...data.movement, data: { values } }).catch(console.error);
  };

  const showDetail = () => {
    const query = data.queries[selected];
    if (!query) return $("detail").replaceChildren(make("p", { className: "quiet" }, "No query is like this."));
    const known = query.top ? ` · ${query.positives} relevant` : " · its passages are not part of this page";
    const seen = new Set([a, b].flatMap((system) => query.top?.[system.value] ?? []));
    const unseen = (query.relevant ?? []).filter((index) => !seen.has(index));
    const figure = make("figure", { className: "chart" });
    $("detail").replaceChildren(
      make("h3", {}, query.text),
      make("div", { className: "quiet" }, make("span", { className: "code" }, query.id), known),
      figure,
      make("div", { className: "sides" }, side(query, a.value), side(query, b.value)),
      ...(unseen.length ? [make("h4", {}, "Relevant, but in neither top ten")] : []),
      ...unseen.map((index) => passageBox(query, index, 0)),
    );
    if (query.top) showMovement(query, figure);
  };

  // ---- the list ------------------------------------------------------------------------------------------------------
  const select = (index, reveal) => {
    selected = index;
    list.removeAttribute("aria-activedescendant");
    for (const option of list.children) {
      const chosen = Number(option.dataset.query) === index;
      option.setAttribute("aria-selected", chosen);
      if (!chosen) continue;
      list.setAttribute("aria-activedescendant", option.id);
      if (reveal) list.scrollTop = option.offsetTop - list.clientHeight / 2; // scrollIntoView would move the page too
    }
    showDetail();
  };

  const option = (index) => {
    const query = data.queries[index];
    const [x, y] = [a.value, b.value].map((system) => query.values[system][measure.value].toFixed(2));
    const [sign, meaning] = { win: ["▲", "A better"], loss: ["▼", "B better"], tie: ["=", "equal"] }[outcomeOf(query)];
    const mark = make("span", { className: outcomeOf(query), title: meaning, "aria-label": meaning, role: "img" }, sign);
    const item = make("div", { role: "option", id: `query-${index}` }, query.text, make("small", {}, mark, ` ${x} against ${y}`));
    item.dataset.query = index;
    item.addEventListener("click", () => open(index, false));
    return item;
  };

  const refresh = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    listed = [...data.queries.keys()].filter((index) => matches(data.queries[index], words));
    listed.sort((x, y) => Math.abs(difference(data.queries[y])) - Math.abs(difference(data.queries[x])));
    const total = listed.length;
    listed = listed.slice(0, LISTED);
    list.replaceChildren(...listed.map(option));
    $("count").textContent = `${total.toLocaleString("en")} ${total === 1 ? "query" : "queries"}${total > LISTED ? `, the first ${LISTED} listed` : " listed"}.`;
    select(listed.includes(selected) ? selected : (listed[0] ?? -1), true);
  };

  // ---- the address: it reopens what is shown -------------------------------------------------------------------------
  const remember = () => {
    const state = new URLSearchParams(controls.map((control) => [control.id, control.value]));
    state.set("query", data.queries[selected]?.id ?? "");
    history.replaceState(null, "", `?${state}${location.hash}`);
  };
  const open = (index, reveal) => {
    select(index, reveal);
    remember();
  };

  list.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[event.key];
    if (!step || !listed.length) return;
    event.preventDefault();
    open(listed[Math.min(listed.length - 1, Math.max(0, listed.indexOf(selected) + step))], true);
  });
  for (const control of [a, b, measure]) control.addEventListener("change", count);
  for (const control of controls) control.addEventListener("input", () => { refresh(); remember(); });

  const names = [[a, data.systems, data.systems.length - 1], [b, data.systems, 0], [measure, data.measures, 0]];
  for (const [control, options, chosen] of names) {
    control.replaceChildren(...options.map((name, value) => make("option", { value }, name)));
    control.value = chosen;
  }
  const state = new URLSearchParams(location.search);
  for (const control of controls) if (state.has(control.id)) control.value = state.get(control.id);
  selected = data.queries.findIndex((query) => query.id === state.get("query"));
  count();
  refresh();
})();
