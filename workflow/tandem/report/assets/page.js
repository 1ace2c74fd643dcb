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
  const button = page.$("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const showTheme = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Show the page ${isDark() ? "light" : "dark"}`);
  };
  let stored = null;
  try { stored = localStorage.getItem("tandem-theme"); } catch { /* a browser may forbid storage to files */ }
  if (stored === "dark" || stored === "light") document.documentElement.dataset.theme = stored;
  if (!button) return;
  button.hidden = false;
  button.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try { localStorage.setItem("tandem-theme", theme); } catch { /* then it lasts as long as the page */ }
    showTheme();
  });
  system.addEventListener("change", showTheme);
  showTheme();
})();

// ---- tables: the heads of `table.sortable` become buttons ------------------------------------------------------------
(() => {
  const cellValue = (row, column) => {
    const cell = row.cells[column];
    const value = cell.dataset.value;
    if (value === undefined) return cell.textContent.trim().toLowerCase();
    return value === "" ? null : Number(value);
  };

  const sortBy = (table, heading) => {
    const column = Number(heading.dataset.column);
    const was = heading.getAttribute("aria-sort");
    const descending = was === "none" ? heading.classList.contains("num") : was === "ascending";
    for (const other of table.tHead.querySelectorAll("[aria-sort]")) other.setAttribute("aria-sort", "none");
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
    const set = (name, value) => (wide ? box.setAttribute(name, value) : box.removeAttribute(name));
    set("tabindex", "0");
    set("role", "region");
    set("aria-label", box.dataset.label ?? box.querySelector("caption")?.textContent ?? "a wide table");
  };
  const sizes = new ResizeObserver((entries) => entries.forEach((entry) => update(entry.target)));
  for (const box of document.querySelectorAll(".scroll")) sizes.observe(box);
})();
