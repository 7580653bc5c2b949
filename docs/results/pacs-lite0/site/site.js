// Tables are sorted by a click on a column's head, or Enter on it. Without JavaScript they are read as they stand.
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  heads.forEach((head, column) => {
    head.classList.add("by");
    head.tabIndex = 0;
    const sort = () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => {
        const cell = row.cells[column];
        return "v" in cell.dataset ? Number(cell.dataset.v.replace("inf", "Infinity")) : cell.textContent;
      };
      const compare = (a, b) => (a === b ? 0 : typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
      const rows = [...table.tBodies[0].rows].sort((a, b) => compare(key(a), key(b)) * (up ? 1 : -1));
      table.tBodies[0].append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      sort();
    });
  });
}

// A table is copied as a spreadsheet takes it: cells between tabs, a line for each row.
const words = (cell) => cell.innerText.replace(/\s+/g, " ").trim();
for (const box of document.querySelectorAll(".table")) {
  const caption = box.querySelector(".caption");
  const button = document.createElement("button");
  button.className = "copy";
  button.textContent = "copy";
  button.addEventListener("click", async () => {
    const rows = [...box.querySelectorAll("tr")].map((row) => [...row.cells].map(words).join("\t"));
    await navigator.clipboard.writeText(rows.join("\n"));
    button.textContent = "copied";
    setTimeout(() => (button.textContent = "copy"), 1500);
  });
  if (navigator.clipboard) caption.append(button);
}

// What is wider than the page says so until it has been scrolled, and is scrolled by keys, too.
for (const box of document.querySelectorAll(".scroll, .wide")) {
  const hint = document.createElement("span");
  hint.className = "hint";
  hint.textContent = "more at the right \u2192";
  const place = box.parentElement.querySelector(".caption, figcaption");
  const name = place ? place.innerText.split(/[.:] /)[0] : "table";
  const look = () => {
    hint.hidden = box.scrollLeft + box.clientWidth >= box.scrollWidth - 2;
    if (box.scrollWidth <= box.clientWidth) return;
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", name);
  };
  if (place) place.append(hint);
  box.addEventListener("scroll", look);
  new ResizeObserver(look).observe(box);
}

// A link into something that is folded unfolds it.
const unfold = () => {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  if (target) target.scrollIntoView();
};
window.addEventListener("hashchange", unfold);
unfold();

// A figure's marks are one stop of the tab key; arrows lead from mark to mark, and the one in focus shows its numbers.
const tip = document.createElement("div");
tip.className = "tip";
tip.setAttribute("aria-hidden", "true"); // a mark's name says the same
tip.hidden = true;
document.body.append(tip);
const place = () => {
  if (tip.hidden) return;
  const box = document.activeElement.getBoundingClientRect();
  const left = Math.min(box.left + box.width / 2 - tip.offsetWidth / 2, innerWidth - tip.offsetWidth - 8);
  const above = box.top - tip.offsetHeight - 6;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${above > 0 ? above : box.bottom + 6}px`;
};
addEventListener("scroll", place, { passive: true, capture: true });
const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };
for (const drawing of document.querySelectorAll(".drawing, .chart svg")) {
  const marks = [...drawing.querySelectorAll("title")].map((title) => title.parentElement);
  if (!marks.length) continue;
  drawing.setAttribute("role", "group");
  marks.forEach((mark, position) => {
    mark.setAttribute("role", "img");
    mark.setAttribute("aria-label", mark.querySelector("title").textContent);
    mark.setAttribute("tabindex", position ? -1 : 0);
    mark.addEventListener("focus", () => {
      marks.forEach((other) => other.setAttribute("tabindex", other === mark ? 0 : -1));
      mark.scrollIntoView({ block: "nearest", inline: "nearest" });
      if (!mark.matches(":focus-visible")) return;
      tip.textContent = mark.getAttribute("aria-label");
      tip.hidden = false;
      place();
    });
    mark.addEventListener("blur", () => (tip.hidden = true));
  });
  drawing.addEventListener("keydown", (event) => {
    if (event.key === "Escape") tip.hidden = true;
    const step = STEPS[event.key], at = marks.indexOf(event.target);
    if (!step || at < 0) return;
    event.preventDefault();
    marks[Math.max(0, Math.min(marks.length - 1, at + step))].focus();
  });
}

// The contents mark the section that is being read.
const links = [...document.querySelectorAll("body > nav a")].filter((link) => document.getElementById(link.hash.slice(1)));
const sections = links.map((link) => document.getElementById(link.hash.slice(1)));
const mark = () => {
  const begun = (section) => section && section.getBoundingClientRect().top < 40;
  const chosen = links.findIndex((link) => link.hash === location.hash);
  const box = chosen < 0 ? null : sections[chosen].getBoundingClientRect();
  // At the end of the page a chosen section can't reach the top: it is marked as long as it is in sight.
  const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
  const current = atEnd && box && box.top >= 0 && box.top < innerHeight ? chosen : sections.findLastIndex(begun);
  links.forEach((link, i) => (i === current ? link.setAttribute("aria-current", "location") : link.removeAttribute("aria-current")));
};
addEventListener("scroll", mark, { passive: true });
addEventListener("hashchange", mark);
mark();

// On paper there is nothing to unfold: what one would look up stands open while it is printed.
const PRINTED = ["compared", "weak", "texture", "ranks0", "single", "epochs", "gap", "power"];
let opened = [];
window.addEventListener("beforeprint", () => {
  opened = PRINTED.map((name) => document.getElementById(name)).filter((fold) => fold && !fold.open);
  opened = opened.concat([...document.querySelectorAll("details.more:not([open]), details.notes:not([open])")]);
  for (const fold of opened) fold.open = true;
});
window.addEventListener("afterprint", () => opened.forEach((fold) => (fold.open = false)));

// Long tables are filtered by words: a row stays if it holds all of them.
for (const box of document.querySelectorAll(".table")) {
  const rows = [...box.querySelectorAll("tbody tr")];
  if (rows.length < 5) continue;
  const label = document.createElement("label");
  label.className = "filter";
  const input = document.createElement("input");
  input.type = "search";
  const count = document.createElement("output");
  label.append("Filter rows", input, count);
  box.querySelector(".caption").after(label);
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !wanted.every((word) => text.includes(word));
    }
    const shown = rows.filter((row) => !row.hidden).length;
    count.value = wanted.length ? `${shown} of ${rows.length} rows` : "";
  });
}

// The first click on a head puts the best on top: the bold score shows if that is the highest. A third click returns to
// the order in which the table was written. The report's script does the sorting.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const written = [...body.rows];
  const number = (cell) => Number((cell.dataset.v ?? "").replace("inf", "Infinity"));
  const isHighestBest = (column) => {
    const cells = written.map((row) => row.cells[column]).filter((cell) => "v" in cell.dataset);
    const best = cells.find((cell) => cell.querySelector("b"));
    return best !== undefined && cells.every((cell) => number(cell) <= number(best));
  };
  const prepare = (event) => {
    const head = event.target.closest("th.by");
    if (!head || (event.type === "keydown" && event.key !== "Enter" && event.key !== " ")) return;
    const first = isHighestBest(head.cellIndex) ? "descending" : "ascending";
    const sorted = head.getAttribute("aria-sort");
    if (!sorted && first === "descending") head.setAttribute("aria-sort", "ascending"); // the script turns it round
    if (!sorted || sorted === first) return;
    event.stopPropagation();
    event.preventDefault();
    head.removeAttribute("aria-sort");
    body.append(...written);
  };
  for (const type of ["click", "keydown"]) table.tHead.addEventListener(type, prepare, { capture: true });
}

// A table is saved as CSV, as it is read: a line for each row.
const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
const cellText = (cell) => {
  const copy = cell.cloneNode(true);
  for (const line of copy.querySelectorAll("br")) line.replaceWith(" ");
  return copy.textContent.replace(/\s+/g, " ").trim();
};
document.querySelectorAll(".table").forEach((box, position) => {
  const link = document.createElement("a");
  const page = location.pathname.split("/").pop().replace(/\.html$/, "") || "index";
  link.className = "copy";
  link.textContent = "CSV";
  link.href = "#";
  link.download = `${page}-${position + 1}.csv`;
  link.addEventListener("click", () => {
    const table = box.querySelector("table");
    const rows = [table.tHead.rows[table.tHead.rows.length - 1], ...table.tBodies[0].rows];
    const lines = rows.map((row) => [...row.cells].map((cell) => quoted(cellText(cell))).join(","));
    link.href = `data:text/csv;charset=utf-8,${encodeURIComponent(lines.join("\n") + "\n")}`;
  });
  box.querySelector(".caption").append(" ", link);
});

// A table of many links can be skipped by the keyboard.
document.querySelectorAll(".table").forEach((box, position) => {
  if (box.querySelectorAll("td a").length < 10) return;
  const end = document.createElement("span");
  end.id = `after-table-${position + 1}`;
  end.tabIndex = -1;
  const skip = document.createElement("a");
  skip.className = "skip";
  skip.href = `#${end.id}`;
  skip.textContent = "Skip this table";
  box.querySelector(".scroll").before(skip);
  box.append(end);
});
