"use strict";

searchTables(document);

// Plotly is unpacked here: its hash is among those that the page's policy allows.
async function unpackPlotly() {
  const packed = document.getElementById("plotly");
  if (!packed) return;
  const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(unpacked).text();
  document.head.append(script);
}
function sayWhatIsMissing() {
  for (const place of document.querySelectorAll(".plot")) {
    place.style.height = "auto";
    place.textContent = "This browser cannot unpack the figures: they need one of 2023 or later.";
  }
}
// An error while drawing is not caught: it is none of unpacking.
unpackPlotly().then(() => window.Plotly && drawFigures(document, Plotly, window.innerWidth), sayWhatIsMissing);

// On paper every part is open, and a figure is as wide as a page of A4 or Letter has room for.
const paperWidth = 680;
window.addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details")) part.open = true;
  if (!window.Plotly) return;
  for (const place of document.querySelectorAll(".plot")) {
    drawFigure(place, Plotly, false);
    Plotly.relayout(place, { width: paperWidth });
  }
});
window.addEventListener("afterprint", () => {
  if (!window.Plotly) return;
  for (const place of document.querySelectorAll(".plot")) {
    Plotly.relayout(place, { width: null, autosize: true });
  }
});
