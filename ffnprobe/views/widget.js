// The widget: the report's blocks in a shadow root, so that neither the notebook's style nor ours leaks.
// Plotly comes from the kernel, once a page, and not from the network.

const PATIENCE = 8000; // milliseconds

function importPlotly(bytes) {
  const before = globalThis.Plotly;
  const url = URL.createObjectURL(new Blob([bytes], { type: "text/javascript" }));
  return import(url).then(() => {
    URL.revokeObjectURL(url);
    const own = globalThis.Plotly;
    if (before) globalThis.Plotly = before;
    return own;
  });
}

function askForPlotly(model) {
  globalThis.ffnprobePlotly ??= new Promise((resolve, reject) => {
    const hear = (content, buffers) => {
      if (content?.plotly !== true) return;
      model.off("msg:custom", hear);
      importPlotly(buffers[0]).then(resolve, reject);
    };
    model.on("msg:custom", hear);
    model.send({ ask: "plotly" });
    setTimeout(() => reject(new Error("the kernel does not answer")), PATIENCE);
  });
  return globalThis.ffnprobePlotly;
}

// Plotly writes its style into the page's head, which does not reach a shadow root.
function copyPlotlyStyle(root) {
  const rules = document.getElementById("plotly.js-style-global")?.sheet?.cssRules ?? [];
  const style = document.createElement("style");
  style.textContent = [...rules].map((rule) => rule.cssText).join("\n");
  root.append(style);
}

async function render({ model, el }) {
  const host = document.createElement("div");
  el.append(host);
  const root = host.attachShadow({ mode: "open" });
  const style = document.createElement("style");
  style.textContent = model.get("look");
  const page = document.createElement("div");
  page.className = "page";
  page.innerHTML = model.get("html"); // escaped where it was written; scripts in it are not run
  root.append(style, page);
  sortOnClick(root);
  searchTables(root);
  root.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]');
    if (!link) return;
    event.preventDefault();
    const name = decodeURIComponent(link.getAttribute("href").slice(1));
    root.querySelector(`#${CSS.escape(name)}`)?.scrollIntoView();
  });
  if (!root.querySelector(".plot")) return;
  try {
    const plotly = await askForPlotly(model);
    copyPlotlyStyle(root);
    drawFigures(root, plotly, el.clientWidth);
  } catch {
    globalThis.ffnprobePlotly = undefined;
    for (const place of root.querySelectorAll(".plot")) {
      place.style.height = "auto";
      place.textContent = "This figure needs the kernel: run the cell again.";
    }
  }
}

export default { render };
