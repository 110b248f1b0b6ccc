"use strict";

// Links within the explorer change the page, not the window; near ones leave the page where it is.
function visit(href, isNear) {
  window.history.pushState({}, "", href);
  window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
  if (isNear) return;
  window.scrollTo(0, 0);
  document.getElementById("page").focus({ preventScroll: true });
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='/']");
  const isPlain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
  if (!link || !isPlain || event.defaultPrevented) return;
  event.preventDefault();
  const isNear = "near" in link.dataset;
  const [path, options] = link.getAttribute("href").split("?");
  const wanted = new URLSearchParams(options);
  // On the same page the slider stays where it was moved to.
  if (isNear && here().has("temperature")) wanted.set("temperature", here().get("temperature"));
  visit(write(path, wanted), isNear);
});

// Forms: what is typed becomes an address. The question stays with the user from page to page.
const question = ["prompt", "answer", "answer_id", "versus", "versus_id", "contrast", "related", "bos"];
const here = () => new URLSearchParams(window.location.search);
const typed = (name) => document.getElementById(name)?.value ?? "";

function keep(names) {
  const before = here();
  return new URLSearchParams([...before].filter(([name]) => names.includes(name)));
}

function write(path, options) {
  return options.size ? `${path}?${options}` : path;
}

const forms = {
  run() {
    const before = here();
    const options = keep(["temperature"]);
    options.set("prompt", typed("prompt"));
    for (const name of ["answer", "versus"]) {
      // An answer without a text of its own stays until another is typed or the prompt changes.
      const id = before.get(`${name}_id`);
      if (typed(name)) options.set(name, typed(name));
      else if (id && before.get("prompt") === typed("prompt")) options.set(`${name}_id`, id);
    }
    for (const line of typed("contrast").split("\n")) if (line) options.append("contrast", line);
    for (const box of document.querySelectorAll(".switch")) {
      const value = box.querySelector("input").checked ? "1" : "0";
      if (value !== box.dataset.usual) options.set(box.firstElementChild.id, value);
    }
    visit(write(window.location.pathname, options), true);
  },
  go() {
    const name = typed("name").trim();
    if (name) visit(write(`/neuron/${encodeURIComponent(name)}`, keep(question)), false);
  },
  find() {
    const options = keep(question);
    for (const token of typed("tokens").split("\n")) if (token) options.append("token", token);
    for (const name of ["layers", "kind", "rank", "by", "away"]) if (typed(name)) options.set(name, typed(name));
    visit(write("/search", options), true);
  },
  join() {
    const name = typed("group").replaceAll(":", " ").trim();
    const options = here();
    const node = options.get("node");
    if (!name || !node) return;
    const groups = options.getAll("group");
    const own = groups.findIndex((group) => group.startsWith(`${name}:`));
    if (own < 0) groups.push(`${name}:${node}`);
    else if (!groups[own].slice(name.length + 1).split(",").includes(node)) groups[own] += `,${node}`;
    options.delete("group");
    for (const group of groups) options.append("group", group);
    visit(write("/circuit", options), true);
  },
};
const boxes = { prompt: "run", answer: "run", versus: "run", name: "go", layers: "find", group: "join" };

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button");
  if (button && button.id in forms) forms[button.id]();
  if (button?.classList.contains("copy")) copy(button);
});
document.addEventListener("change", (event) => {
  if (event.target.closest?.(".switch")) forms.run();
});
document.addEventListener("keydown", (event) => {
  // Shift+Enter begins a new line.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || !(event.target.id in boxes)) return;
  event.preventDefault();
  forms[boxes[event.target.id]]();
});

// A server that is busy says when to ask again: the page shows it, and asks again.
const ask = window.fetch.bind(window);
window.fetch = async (...request) => {
  for (;;) {
    const reply = await ask(...request);
    document.body.classList.toggle("busy", reply.status === 503);
    if (reply.status !== 503) return reply;
    await new Promise((wake) => window.setTimeout(wake, 1000 * Number(reply.headers.get("Retry-After") ?? 1)));
  }
};

async function copy(button) {
  await navigator.clipboard.writeText(button.closest(".recipe").querySelector("code").textContent);
  button.classList.add("copied");
  window.setTimeout(() => button.classList.remove("copied"), 1500);
}

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const narrow = window.matchMedia("(max-width: 600px)");
const viewport = () => ({ dark: dark.matches, narrow: narrow.matches });
const picked = (click) => click?.points?.[0]?.customdata;

// What Dash calls in the browser; none of it returns anything to show.
const nothing = () => window.dash_clientside.no_update;
window.dash_clientside = Object.assign({}, window.dash_clientside, {
  explorer: {
    watchScreen() {
      for (const query of [dark, narrow]) {
        query.onchange = () => window.dash_clientside.set_props("screen", { data: viewport() });
      }
      return viewport();
    },
    // What a slider says is written into the address, so that a reload shows it again.
    writeAddress(live) {
      const options = here();
      for (const name of ["temperature", "set"]) if (live && name in live) options.set(name, live[name]);
      const address = write(window.location.pathname, options);
      if (live && Object.keys(live).length) window.history.replaceState({}, "", address);
      return nothing();
    },
    openCell(click) {
      if (!picked(click)) return nothing();
      const [stage, position] = picked(click).split(" ");
      const options = here();
      options.set("after", stage);
      options.set("position", position);
      visit(write("/", options), true);
      return nothing();
    },
    openNode(click) {
      if (!picked(click)) return nothing();
      const options = here();
      options.set("node", picked(click));
      visit(write("/circuit", options), true);
      return nothing();
    },
    openNeuron(click) {
      if (picked(click)) visit(write(`/neuron/${picked(click)}`, keep(question)), false);
      return nothing();
    },
    nameWindow() {
      window.requestAnimationFrame(() => {
        const heading = document.querySelector("#page h1");
        document.title = heading ? `${heading.textContent} · ffnprobe` : "ffnprobe";
      });
      return nothing();
    },
  },
});
