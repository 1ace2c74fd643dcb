"use strict";
// Answers by mouse or keyboard, kept in the browser where it lets us, and saved as the CSV that `relabel` reads.
(() => {
  const all = document.getElementById("queries-asked");
  const articles = [...all.querySelectorAll("article")];
  const place = `tandem ${all.dataset.key}`;
  const idOf = (article) => JSON.stringify([article.parentElement.dataset.query, article.dataset.doc]);
  const verdictOf = (article) => article.querySelector("input:checked").value;

  // ---- answers ------------------------------------------------------------------------------------------------
  const readAnswers = () => {
    try {
      return JSON.parse(localStorage.getItem(place)) ?? {};
    } catch {
      return {}; // no storage for pages opened from a file: the answers last as long as the page
    }
  };
  const storeAnswers = () => {
    const answered = articles.filter(verdictOf);
    document.getElementById("count").textContent = `${answered.length} of ${articles.length} answered`;
    try {
      localStorage.setItem(place, JSON.stringify(Object.fromEntries(answered.map((article) => [idOf(article), verdictOf(article)]))));
    } catch {
      // as above
    }
  };
  const answer = (article, verdict) => {
    article.querySelector(`input[value="${verdict}"]`).checked = true;
    storeAnswers();
  };

  // ---- moving -------------------------------------------------------------------------------------------------
  let at = -1;
  const go = (to) => {
    if (!articles[to]) return;
    at = to;
    articles[at].focus({ preventScroll: true });
    articles[at].scrollIntoView({ block: "nearest" });
  };
  const nextUnanswered = () => {
    const order = [...articles.keys()].map((step) => (at + 1 + step) % articles.length);
    const found = order.find((index) => !verdictOf(articles[index]));
    if (found !== undefined) go(found);
  };

  // ---- CSV ----------------------------------------------------------------------------------------------------
  const safe = (text) => (text && all.dataset.formula.includes(text[0]) ? `'${text}` : text);
  const safeId = (text) => (text.startsWith("'") ? `'${text}` : safe(text));
  const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const cells = (article) => {
    const section = article.parentElement;
    return {
      query_id: safeId(section.dataset.query),
      doc_id: safeId(article.dataset.doc),
      query: safe(section.querySelector("h2").textContent),
      title: safe(article.querySelector("h3").textContent),
      passage: safe(article.querySelector(".text").textContent),
      score: article.dataset.score,
      rank: article.dataset.rank,
      label: article.dataset.label ?? "",
      verdict: verdictOf(article),
    };
  };
  const csv = () => {
    const columns = all.dataset.columns.split(" ");
    const rows = articles.map(cells).map((row) => columns.map((name) => quoted(row[name])).join(","));
    return `\ufeff${[columns.join(","), ...rows].join("\n")}\n`;
  };
  const save = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
    link.download = `${all.dataset.key}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  };

  // ---- events -------------------------------------------------------------------------------------------------
  const keys = {
    j: () => go(at + 1),
    k: () => go(at - 1),
    n: nextUnanswered,
    s: save,
    1: () => answer(articles[at], "1"),
    0: () => answer(articles[at], "0"),
    u: () => answer(articles[at], ""),
  };
  document.addEventListener("keydown", (event) => {
    const action = keys[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    if ("10u".includes(event.key) && at < 0) return;
    event.preventDefault();
    action();
  });
  all.addEventListener("focusin", (event) => (at = articles.indexOf(event.target.closest("article"))));
  all.addEventListener("click", (event) => {
    const index = articles.indexOf(event.target.closest("article"));
    if (index >= 0) at = index;
  });
  all.addEventListener("change", storeAnswers);
  document.getElementById("next").addEventListener("click", nextUnanswered);
  document.getElementById("save").addEventListener("click", save);

  const before = readAnswers();
  for (const article of articles) {
    const verdict = before[idOf(article)];
    if (verdict === "1" || verdict === "0") article.querySelector(`input[value="${verdict}"]`).checked = true;
  }
  storeAnswers();
})();
