
"use strict";
// Makes the heads of tables buttons that sort: numbers by their value, other text by its letters.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  // A narrow window shows each row of a wide table as a list, with a label before each value.
  if (table.tHead.rows[0].cells.length > 3) table.classList.add("wide");
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    for (const row of body.rows) row.cells[column].dataset.label = head.textContent;
    const isNumber = head.classList.contains("number");
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort") ?? (isNumber ? "ascending" : "descending");
      const order = before === "ascending" ? "descending" : "ascending";
      for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const text = (row) => row.cells[column].textContent;
      const number = (row) => Number(row.cells[column].dataset.number ?? -1);
      const compare = isNumber
        ? (a, b) => number(a) - number(b)
        : (a, b) => text(a).localeCompare(text(b));
      body.append(...[...body.rows].sort((a, b) => sign * compare(a, b)));
    });
  });
}
