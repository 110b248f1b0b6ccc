"use strict";

// Tables of the report, the explorer and the widget: a click on a head sorts by it, a second one reverses the order;
// equal rows stay put.
function readCell(row, column, isNumber) {
  const text = row.cells[column].textContent;
  if (!isNumber) return text;
  return text === "" ? -Infinity : Number(text);
}

function sortBy(head) {
  const table = head.closest("table");
  const column = head.cellIndex;
  const isNumber = head.dataset.type === "number";
  // Numbers are looked at largest first.
  const first = isNumber ? "descending" : "ascending";
  const other = isNumber ? "ascending" : "descending";
  const order = head.getAttribute("aria-sort") === first ? other : first;
  for (const each of table.tHead.rows[0].cells) each.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const compare = isNumber ? (a, b) => a - b : (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const keyed = [...table.tBodies[0].rows].map((row) => [readCell(row, column, isNumber), row]);
  keyed.sort((a, b) => sign * compare(a[0], b[0]) || 0);
  table.tBodies[0].append(...keyed.map(([, row]) => row));
}

function sortOnClick(root) {
  root.addEventListener("click", (event) => {
    const head = event.target.closest?.(".sortable th");
    if (head) sortBy(head);
  });
}
