"use strict";
// What every script of the page uses, and what every page does: light or dark, sorted tables, stages that open.
const page = {
  $: (id) => document.getElementById(id),

  // An element with properties, attributes and children; texts only ever become text nodes.
  make: (tag, properties = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in element) element[name] = value;
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  },
};

// ---- light and dark: as the system says until the button is pressed; kept in this browser ----------------------------
(() => {
  const [button, root] = [page.$("theme"), document.documentElement.dataset];
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.theme ?? (system.matches ? "dark" : "light")) === "dark";
  try {
    const stored = localStorage.getItem("tandem-theme");
    if (stored) root.theme = stored;
  } catch { /* a browser may forbid storage to files: then the choice lasts as long as the page */ }
  if (!button) return;
  const showTheme = () => (button.textContent = isDark() ? "Light" : "Dark");
  button.hidden = false;
  button.addEventListener("click", () => {
    root.theme = isDark() ? "light" : "dark";
    showTheme();
    try { localStorage.setItem("tandem-theme", root.theme); } catch { /* as above */ }
  });
  system.addEventListener("change", showTheme);
  showTheme();
})();

// ---- tables: the heads of `table.sortable` become buttons ------------------------------------------------------------
(() => {
  const cellValue = (row, column) => {
    const { dataset, textContent } = row.cells[column];
    if (dataset.value === undefined) return textContent.trim().toLowerCase();
    return dataset.value === "" ? null : Number(dataset.value);
  };
  const sortBy = (table, heading) => {
    const was = heading.getAttribute("aria-sort");
    const descending = was === "none" ? heading.classList.contains("num") : was === "ascending";
    for (const other of table.tHead.querySelectorAll("[aria-sort]")) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const [x, y] = [a, b].map((row) => cellValue(row, heading.cellIndex));
      if (x === null || y === null) return (x === null) - (y === null); // empty cells stay last
      return (x < y ? -1 : x > y ? 1 : 0) * (descending ? -1 : 1);
    });
    table.tBodies[0].append(...rows);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const heading of table.tHead.querySelectorAll("th")) {
      const button = page.make("button", { type: "button", title: "sort by this column" }, ...heading.childNodes);
      button.addEventListener("click", () => sortBy(table, heading));
      heading.setAttribute("aria-sort", "none");
      heading.replaceChildren(button);
    }
  }
})();

// ---- a link opens what its target is folded in --------------------------------------------------------------------------
(() => {
  const openTarget = () => {
    const target = page.$(decodeURIComponent(location.hash.slice(1)));
    const folded = target?.closest("details");
    if (!folded) return;
    for (let at = folded; at; at = at.parentElement.closest("details")) at.open = true;
    target.scrollIntoView({ block: "start" });
  };
  window.addEventListener("hashchange", openTarget);
  openTarget();
})();

// ---- what is wider than its place can be scrolled by the keyboard ---------------------------------------------------------
(() => {
  const update = (box) => {
    const wide = box.scrollWidth > box.clientWidth + 1;
    const label = box.dataset.label ?? box.querySelector("caption")?.textContent ?? "a wide table";
    for (const [name, value] of Object.entries({ tabindex: "0", role: "group", "aria-label": label })) {
      if (wide) box.setAttribute(name, value);
      else box.removeAttribute(name);
    }
  };
  const sizes = new ResizeObserver((entries) => entries.forEach((entry) => update(entry.target)));
  for (const box of document.querySelectorAll(".scroll")) sizes.observe(box);
})();
