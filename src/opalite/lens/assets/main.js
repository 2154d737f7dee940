// The frame of the page: header, tabs, search, keys, theme.

let views = [];
let shown = 0;

function buildViews() {
  const many = lens.comparisons || [];
  views = [
    ["Graph", graphView],
    ["Timeline", timelineView],
    ["Roofline", rooflineView],
    ["Memory", memoryView],
    ["Nodes", nodesView],
    ...(doc.drift?.points?.length ? [["Drift", driftView]] : []),
    ...many.map((comparison, i) => [many.length > 1 ? `Comparison ${i + 1}` : "Comparison", () => comparisonView(comparison)]),
  ].map(([title, make]) => ({ title, make, element: null }));
  byId("tabs").replaceChildren(
    ...views.map((view, i) => el("button", { type: "button", role: "tab", onclick: () => showView(i), id: `tab-${i}` }, view.title)),
  );
}

function showView(index) {
  shown = (index + views.length) % views.length;
  const view = views[shown];
  const isNew = !view.element;
  if (isNew) view.element = view.make();
  byId("views").replaceChildren(view.element);
  [...byId("tabs").children].forEach((tab, i) => tab.setAttribute("aria-selected", String(i === shown)));
  byId("tabs").children[shown].scrollIntoView({ block: "nearest", inline: "nearest" });
  view.element.onshow?.();
  view.element.onselect?.(counterparts(selection.kind, selection.id));
}

const current = () => views[shown].element;

function headerTexts() {
  const { header } = doc;
  const shape = (port) => `${port.name} ${port.dtype || ""}[${port.shape ?? ""}]`;
  byId("title").textContent = header.model;
  const run = header.steady_ms ?? header.run_ms;
  const time = isNumber(run) ? `${formatMs(run)} a run` : isNumber(header.device_ms) ? `${formatMs(header.device_ms)} expected` : "";
  const count = isNumber(header.launches) ? counted(header.launches, "launch", "launches") : "";
  byId("summary").textContent = [header.device, header.precision, ...(header.inputs || []).slice(0, 2).map(shape), time, count].filter(Boolean).join(" · ");
  const ports = (list) => (list || []).map((port) => el("div", { class: "mono" }, shape(port)));
  const measured = header.is_measured ? `${header.runs} runs, means of the ${header.typical_runs} most typical` : "estimated, nothing was run";
  const peaks = Object.entries(doc.peaks || {}).map(([kind, peak]) => {
    const rate = kind === "bandwidth" ? `memory ${formatBytes(peak.rate)}/s` : `${KINDS[kind] || kind} ${formatRate(peak.rate)}`;
    return el("div", {}, rate, el("span", { class: "muted" }, peak.is_measured ? " measured" : " estimated"));
  });
  byId("about").replaceChildren(
    pairs([
      ["model", [header.model, header.producer, header.opset ? `opset ${header.opset}` : ""].filter(Boolean).join(", ")],
      ["inputs", ports(header.inputs)],
      ["outputs", ports(header.outputs)],
      ["precision", header.precision],
      ["device", header.device],
      ["driver", [header.driver, header.platform, header.opencl].filter(Boolean).join("; ")],
      ["peaks", peaks],
      ["times", measured],
      ["a run", [formatMs(header.steady_ms), isNumber(header.run_ms) ? `${formatMs(header.run_ms)} with a timer at each launch` : ""].filter(Boolean).join("; ")],
      ["", header.error?.words],
      ["launches", [count, formatMs(header.device_ms), formatFlops(header.flops), formatBytes(header.bytes)].filter(Boolean).join(", ")],
      ["on the host", header.host_steps ? `${header.host_steps} steps` : ""],
      ["version", header.version ? `Opalite ${header.version}` : ""],
      ["command", header.command ? el("code", {}, header.command) : ""],
      ["date", header.date],
      ["notes", (header.notes || []).map((note) => el("div", {}, note))],
    ]),
  );
}

function showAbout(isShown) {
  byId("about").hidden = !isShown;
  byId("about-button").setAttribute("aria-expanded", String(isShown));
}

// Search in names, operators and kernels; Enter goes to what is marked in the list.
const search = { results: [], at: 0 };
const MOST_FOUND = 60;

function findAll(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const has = (...texts) => words.every((word) => texts.some((t) => t && t.toLowerCase().includes(word)));
  const model = doc.graph.nodes
    .filter((node) => has(node.op, node.label, ...(node.outputs || [])))
    .map((node) => ({ kind: "model", id: node.id, title: node.op, rest: node.label, where: "model", colour: node.colour }));
  const steps = doc.program.steps
    .filter((step) => has(step.group_name, step.title, step.entry, step.info?.operators))
    .map((step) => ({ kind: "step", id: step.id, title: step.group_name, rest: step.title, where: `step ${step.id}`, colour: step.colour }));
  const kernels = doc.kernels
    .filter((group) => has(group.name))
    .map((group) => ({ kind: "kernel", id: group.name, title: group.name, rest: formatMs(group.ms), where: `kernel, ${group.steps} ×`, colour: group.colour }));
  return [...kernels, ...steps, ...model];
}

function showFound() {
  const list = byId("found");
  const text = byId("search").value;
  search.results = findAll(text);
  search.at = Math.min(search.at, Math.max(0, Math.min(search.results.length, MOST_FOUND) - 1));
  const items = search.results.slice(0, MOST_FOUND).map((result, i) =>
    el(
      "li",
      { role: "option", "aria-selected": String(i === search.at), id: `found-${i}`, onmousedown: (event) => (event.preventDefault(), goTo(result)) },
      swatch(result.colour), el("strong", {}, result.title), ` ${result.rest} `, el("span", { class: "muted" }, result.where),
    ),
  );
  if (text.trim() && !items.length) items.push(el("li", { class: "muted" }, "Nothing is called so."));
  if (search.results.length > MOST_FOUND) items.push(el("li", { class: "muted" }, `and ${search.results.length - MOST_FOUND} more`));
  list.replaceChildren(...items);
  list.hidden = !items.length;
  byId("search").setAttribute("aria-expanded", String(!list.hidden));
  list.children[search.at]?.scrollIntoView({ block: "nearest" });
}

function goTo(result) {
  byId("found").hidden = true;
  byId("search").setAttribute("aria-expanded", "false");
  byId("search").blur();
  select(result.kind, result.id);
  (current().focusable || byId("details")).focus({ preventScroll: true });
}

function listenToSearch() {
  const input = byId("search");
  input.addEventListener("input", () => ((search.at = 0), showFound()));
  input.addEventListener("focus", showFound);
  input.addEventListener("blur", () => (byId("found").hidden = true));
  input.addEventListener("keydown", (event) => {
    const count = Math.min(search.results.length, MOST_FOUND);
    if (event.key === "Enter" && count) goTo(search.results[search.at]);
    else if (event.key === "ArrowDown" && count) search.at = (search.at + 1) % count;
    else if (event.key === "ArrowUp" && count) search.at = (search.at + count - 1) % count;
    else if (event.key === "Escape") {
      input.value = "";
      input.blur();
    } else return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key.startsWith("Arrow")) showFound();
  });
}

const KEYS = [
  ["/", "search"], ["Escape", "close what is open, then choose nothing"], ["?", "this list"], ["1 – 9", "show a tab"], ["[ ]", "the tab before, the next"],
  ["↑ ↓", "in a graph: along its edges"], ["← →", "in a graph: along a row"], ["+ − 0", "in a graph: zoom in, out, fit"], ["t", "light or dark"], ["i", "about this run"],
];

function showHelp() {
  const dialog = byId("help");
  const list = pairs(KEYS.map(([key, what]) => [el("kbd", {}, key), what]));
  const mouse = "The wheel scrolls a graph, with Ctrl it zooms; dragging pans. Colours are kernels, the same in every view.";
  dialog.replaceChildren(el("h2", {}, "Keys"), list, el("p", { class: "muted" }, mouse), el("form", { method: "dialog" }, el("button", {}, "Close")));
  dialog.showModal();
}

function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
    if (event.target.closest("input, select")) return;
    if (event.key === "/") byId("search").focus();
    else if (event.key === "?") showHelp();
    else if (event.key === "Escape" && !byId("about").hidden) showAbout(false);
    else if (event.key === "Escape") select(null, null);
    else if (event.key === "[") showView(shown - 1);
    else if (event.key === "]") showView(shown + 1);
    else if (event.key === "t") setTheme(otherTheme());
    else if (event.key === "i") showAbout(byId("about").hidden);
    else if (/^[1-9]$/.test(event.key) && Number(event.key) <= views.length) showView(Number(event.key) - 1);
    else return;
    event.preventDefault();
  });
}

const otherTheme = () => (document.documentElement.dataset.theme === "dark" ? "light" : "dark");

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  readPalette();
  for (const view of views) if (view.element) view.element.ontheme?.();
}

function fillDocuments() {
  const choice = byId("documents");
  choice.hidden = documents.length < 2;
  const name = (data, i) => `${i + 1}: ${data.header.model}, ${data.header.device}, ${data.header.precision}`;
  choice.replaceChildren(...documents.map((data, i) => el("option", { value: i }, name(data, i))));
  choice.addEventListener("change", () => showDocument(Number(choice.value)));
}

function start() {
  const preference = matchMedia("(prefers-color-scheme: dark)");
  setTheme(preference.matches ? "dark" : "light");
  preference.addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));
  byId("theme").addEventListener("click", () => setTheme(otherTheme()));
  byId("help-button").addEventListener("click", showHelp);
  byId("about-button").addEventListener("click", () => showAbout(byId("about").hidden));
  listenToSearch();
  listenToKeys();
  fillDocuments();
  listeners.select.push((sets, from) => current().onselect?.(sets, from), showDetails);
  listeners.hover.push((sets) => current().onhover?.(sets));
  listeners.document.push(() => {
    headerTexts();
    buildViews();
    showView(Math.min(shown, views.length - 1));
    showDetails();
  });
  tell("document");
}

start();
