
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
