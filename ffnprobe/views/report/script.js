"use strict";

// Figures: the data stands beside each place as JSON, which no browser executes.
const isNarrow = window.innerWidth < 600;
for (const place of document.querySelectorAll(".plot")) {
  const { data, layout } = JSON.parse(place.nextElementSibling.textContent);
  if (isNarrow) {
    layout.font = { ...layout.font, size: 10 };
    layout.margin = { ...layout.margin, l: 30, r: 10 };
    layout.legend = { ...layout.legend, orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom" };
    if (layout.xaxis?.tickangle) layout.xaxis = { ...layout.xaxis, tickangle: -90 };
    for (const trace of data) {
      if (trace.texttemplate || trace.type === "bar") trace.textfont = { ...trace.textfont, size: 8 };
    }
  }
  Plotly.newPlot(place, data, layout, { responsive: true, displayModeBar: false });
}

// Tables: a click on a head sorts by it, a second one turns the order round; equal rows stay put.
function valueOf(row, column, isNumber) {
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
  const keyed = [...table.tBodies[0].rows].map((row) => [valueOf(row, column, isNumber), row]);
  keyed.sort((a, b) => sign * compare(a[0], b[0]) || 0);
  table.tBodies[0].append(...keyed.map(([, row]) => row));
}

function search(box) {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  const table = document.getElementById(box.dataset.table);
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
    shown += row.hidden ? 0 : 1;
  }
  box.nextElementSibling.textContent = `${shown} of ${table.tBodies[0].rows.length} rows`;
}

for (const head of document.querySelectorAll(".sortable th")) {
  head.querySelector("button").addEventListener("click", () => sortBy(head));
}
for (const box of document.querySelectorAll("input[type=search]")) {
  box.addEventListener("input", () => search(box));
  search(box);
}

// Cards: a link to one opens it.
function openTarget() {
  const target = document.getElementById(location.hash.slice(1));
  if (target && target.tagName === "DETAILS") target.open = true;
}
window.addEventListener("hashchange", openTarget);
openTarget();

// On paper every card is open, and a figure is as wide as a page of A4 or Letter has room for.
const paperWidth = 680;
window.addEventListener("beforeprint", () => {
  for (const card of document.querySelectorAll("details")) card.open = true;
  for (const place of document.querySelectorAll(".plot")) Plotly.relayout(place, { width: paperWidth });
});
window.addEventListener("afterprint", () => {
  for (const place of document.querySelectorAll(".plot")) {
    Plotly.relayout(place, { width: null, autosize: true });
  }
});
