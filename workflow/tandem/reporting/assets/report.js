"use strict";
// Sorting of tables, opening of stages that are linked to, and the explorer of single queries.
(() => {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);

  // An element with properties, attributes and children; texts only ever become text nodes.
  const make = (tag, properties = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in element) element[name] = value;
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  };

  // ---- tables -------------------------------------------------------------------------------------------------
  const cellValue = (row, column) => {
    const cell = row.cells[column];
    const told = cell.dataset.value;
    if (told === undefined) return cell.textContent.trim().toLowerCase();
    return told === "" ? null : Number(told);
  };

  const sortBy = (table, heading) => {
    const column = Number(heading.dataset.column);
    const numeric = heading.classList.contains("num");
    const was = heading.getAttribute("aria-sort");
    const descending = was ? was === "ascending" : numeric;
    for (const other of table.tHead.querySelectorAll("[aria-sort]")) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      const [x, y] = [cellValue(a, column), cellValue(b, column)];
      if (x === null || y === null) return (x === null) - (y === null); // empty cells stay last
      const order = x < y ? -1 : x > y ? 1 : 0;
      return descending ? -order : order;
    });
    table.tBodies[0].append(...rows);
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    for (const heading of table.tHead.querySelectorAll("[data-column]")) {
      const button = make("button", { type: "button", textContent: heading.textContent });
      button.addEventListener("click", () => sortBy(table, heading));
      heading.replaceChildren(button);
    }
  }

  // ---- stages -------------------------------------------------------------------------------------------------
  const openTarget = () => {
    const target = location.hash.startsWith("#stage-") && $(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    target.open = true;
    target.scrollIntoView({ block: "start" });
  };
  window.addEventListener("hashchange", openTarget);

  // ---- single queries -----------------------------------------------------------------------------------------
  const [a, b, measure, outcome, search] = ["system-a", "system-b", "measure", "outcome", "search"].map($);
  const list = $("queries");
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

  const passageBox = (index, rank, relevant) => {
    const [id, title, text] = data.passages[index];
    const head = make("header", {}, rank ? make("b", { textContent: rank }) : "", make("span", { className: "code", textContent: id }));
    if (relevant) head.append(make("span", { className: "tag", textContent: "✓ relevant" }));
    const body = make("p", {}, title ? make("strong", { textContent: `${title} ` }) : "", text);
    const box = make("article", { className: relevant ? "passage relevant" : "passage" }, head, body);
    const more = make("button", { type: "button", textContent: "more" });
    more.addEventListener("click", () => (more.textContent = box.classList.toggle("open") ? "less" : "more"));
    box.append(more);
    return box;
  };

  const side = (query, system) => {
    const values = data.measures.map((name, at) => `${name} ${query.values[system][at].toFixed(3)}`).join(" · ");
    const boxes = query.top[system].map((index, at) => passageBox(index, at + 1, query.relevant.includes(index)));
    const empty = boxes.length ? [] : [make("p", { className: "quiet", textContent: "No passage was returned." })];
    return make("div", {}, make("h4", { textContent: data.systems[system] }), make("p", { className: "quiet", textContent: values }), ...boxes, ...empty);
  };

  const showDetail = () => {
    const query = data.queries[selected];
    if (!query) return $("detail").replaceChildren();
    const seen = new Set([...query.top[a.value], ...query.top[b.value]]);
    const unseen = query.relevant.filter((index) => !seen.has(index));
    const parts = [
      make("h3", { textContent: query.text }),
      make("div", { className: "quiet" }, make("span", { className: "code", textContent: query.id }), ` · ${query.positives} relevant`),
      make("div", { className: "sides" }, side(query, a.value), side(query, b.value)),
    ];
    if (unseen.length) parts.push(make("h4", { textContent: "Relevant, but in neither top ten" }), ...unseen.map((i) => passageBox(i, 0, true)));
    $("detail").replaceChildren(...parts);
    for (const text of $("detail").querySelectorAll(".passage p")) {
      if (text.scrollHeight <= text.clientHeight + 1) text.nextElementSibling.remove(); // nothing more to show
    }
  };

  // Scrolls the list only: scrollIntoView would move the page too.
  const revealIn = (box, item) => {
    const [outer, inner] = [box.getBoundingClientRect(), item.getBoundingClientRect()];
    if (inner.top < outer.top) box.scrollTop -= outer.top - inner.top;
    if (inner.bottom > outer.bottom) box.scrollTop += inner.bottom - outer.bottom;
  };

  const select = (index, reveal) => {
    selected = index;
    for (const option of list.children) {
      const chosen = Number(option.dataset.query) === index;
      option.setAttribute("aria-selected", chosen);
      if (chosen) {
        list.setAttribute("aria-activedescendant", option.id);
        if (reveal) revealIn(list, option);
      }
    }
    showDetail();
  };

  const option = (index) => {
    const query = data.queries[index];
    const [x, y] = [a.value, b.value].map((s) => query.values[s][Number(measure.value)].toFixed(2));
    const sign = { win: "▲", loss: "▼", tie: "=" }[outcomeOf(query)];
    const item = make("div", { role: "option", id: `query-${index}` }, query.text, make("small", {}, make("span", { className: outcomeOf(query), textContent: sign }), ` ${x} against ${y}`));
    item.dataset.query = index;
    item.addEventListener("click", () => select(index, false));
    return item;
  };

  const refresh = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    listed = [...data.queries.keys()].filter((index) => matches(data.queries[index], words));
    list.replaceChildren(...listed.map(option));
    const tally = { win: 0, loss: 0, tie: 0 };
    for (const query of data.queries) tally[outcomeOf(query)] += 1;
    $("count").textContent = `${listed.length} listed. Of all ${data.queries.length}: A better on ${tally.win}, B better on ${tally.loss}, equal on ${tally.tie}.`;
    select(listed.includes(selected) ? selected : (listed[0] ?? -1), true);
  };

  list.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[event.key];
    if (!step || !listed.length) return;
    event.preventDefault();
    const to = Math.min(listed.length - 1, Math.max(0, listed.indexOf(selected) + step));
    select(listed[to], true);
  });
  for (const control of [a, b, measure, outcome]) control.addEventListener("change", refresh);
  search.addEventListener("input", refresh);

  // ---- self-check: open the page with #selftest and read the element it adds ------------------------------------
  const check = () => {
    const failed = [];
    const must = (name, holds) => { if (!holds) failed.push(name); };
    const set = (control, value, event) => { control.value = value; control.dispatchEvent(new Event(event)); };
    for (const table of document.querySelectorAll("table.sortable")) {
      const heading = table.tHead.querySelector(".num[data-column]");
      const column = Number(heading.dataset.column);
      for (const direction of ["descending", "ascending"]) {
        heading.querySelector("button").click();
        const values = [...table.tBodies[0].rows].map((row) => cellValue(row, column)).filter((v) => v !== null);
        const right = values.every((v, i) => !i || (direction === "ascending" ? values[i - 1] <= v : values[i - 1] >= v));
        must(`sorted ${direction}`, right && heading.getAttribute("aria-sort") === direction);
      }
    }
    must("page not scrolled", window.scrollY === 0);
    must("all queries listed", list.children.length === data.queries.length);
    list.lastElementChild.click();
    const last = data.queries[data.queries.length - 1];
    must("query shown", $("detail").querySelector("h3").textContent === last.text);
    const shown = $("detail").querySelector(".sides").querySelectorAll(".passage").length;
    must("passages shown", shown > 0 && shown === last.top[a.value].length + last.top[b.value].length);
    list.dispatchEvent(new KeyboardEvent("keydown", { key: "Home" }));
    must("keyboard", selected === 0);
    set(search, last.id, "input");
    must("search", listed.length > 0 && listed.includes(data.queries.length - 1));
    set(search, "", "input");
    for (const kind of ["win", "loss", "tie"]) {
      set(outcome, kind, "change");
      must(`filter ${kind}`, listed.every((index) => outcomeOf(data.queries[index]) === kind));
    }
    set(outcome, "all", "change");
    const link = document.querySelector("table.results a");
    must("link to a stage", $(decodeURIComponent(link.hash.slice(1))) instanceof HTMLDetailsElement);
    must("nothing loaded", performance.getEntriesByType("resource").length === 0);
    document.body.append(make("pre", { id: "selftest", textContent: failed.length ? `failed: ${failed.join(", ")}` : "passed" }));
  };

  fillSelect(a, data.systems, Math.min(1, data.systems.length - 1));
  fillSelect(b, data.systems, 0);
  fillSelect(measure, data.measures, 0);
  refresh();
  openTarget();
  if (location.hash === "#selftest") check();
})();
