"use strict";

if (window.Plotly) drawFigures(document, Plotly, window.innerWidth);
searchTables(document);

function openTarget() {
  openCard(document, location.hash.slice(1));
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
