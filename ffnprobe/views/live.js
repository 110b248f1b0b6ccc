"use strict";

// What a page and a widget share; `root` is the page, or the widget's own part of one.

// Figures: the data stands beside each place as JSON, which no browser executes.
function drawFigure(place, plotly, isNarrow) {
  if (place.dataset.isDrawn) return;
  place.dataset.isDrawn = "yes";
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
  plotly.newPlot(place, data, layout, { responsive: true, displayModeBar: false });
}

// A folded figure has no width: it is drawn once it is opened.
function drawFigures(root, plotly, width) {
  const draw = (within) => {
    for (const place of within.querySelectorAll(".plot")) {
      if (!place.closest("details:not([open])")) drawFigure(place, plotly, width < 600);
    }
  };
  root.addEventListener("toggle", (event) => draw(event.target), true);
  draw(root);
}

// Tables: a search keeps the rows that hold every word.
function search(root, box) {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  const table = root.querySelector(`#${CSS.escape(box.dataset.table)}`);
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
    shown += row.hidden ? 0 : 1;
  }
  box.nextElementSibling.textContent = `${shown} of ${table.tBodies[0].rows.length} rows`;
}

function searchTables(root) {
  for (const box of root.querySelectorAll("input[type=search]")) {
    box.addEventListener("input", () => search(root, box));
    search(root, box);
  }
}
