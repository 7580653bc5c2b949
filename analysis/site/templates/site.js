
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
