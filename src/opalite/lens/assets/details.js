// The panel of the chosen node or step.

const linkTo = (kind, id, text) => el("button", { class: "link", type: "button", onclick: () => select(kind, id) }, text);
const modelLink = (id) => linkTo("model", id, `${doc.graph.nodes[id].op} ${doc.graph.nodes[id].label}`);
const stepLink = (id) => linkTo("step", id, `${doc.program.steps[id].group_name} (step ${id})`);
const section = (title, ...content) => (content.some(Boolean) ? [el("h3", {}, title), ...content.filter(Boolean)] : []);

const LONG = 12;

// A list of links, the first few of many.
function links(items, make) {
  const line = (item) => el("div", {}, make(item));
  if (items.length <= LONG) return items.map(line);
  return [...items.slice(0, LONG).map(line), el("details", {}, el("summary", {}, `${items.length - LONG} more`), ...items.slice(LONG).map(line))];
}

function tensors(names) {
  return names.filter(Boolean).map((name) => el("div", {}, el("span", { class: "mono" }, name), el("span", { class: "muted" }, ` ${tensorText(name)}`)));
}

function candidatesTable(info) {
  const candidates = info.candidates || [];
  const refusals = Object.entries(info.refusals || {});
  if (!candidates.length && !refusals.length) return null;
  const measured = candidates.filter((candidate) => candidate.is_measured).length;
  const isMixed = measured > 0 && measured < candidates.length;
  const rows = [...candidates].sort((a, b) => (a.ms ?? Infinity) - (b.ms ?? Infinity));
  const isChosen = (candidate) => candidate.kernel === info.kernel && (candidate.is_chosen ?? true);
  const body = rows.map((candidate) =>
    el(
      "tr",
      { class: isChosen(candidate) ? "chosen" : null },
      el("td", { class: "kernel" }, candidate.kernel, isChosen(candidate) ? " ✓" : ""),
      el("td", {}, candidate.layout || ""),
      el("td", { class: "number" }, formatMs(candidate.ms)),
      isMixed ? el("td", {}, candidate.is_measured ? "measured" : "") : null,
    ),
  );
  const refused = refusals.map(([kernel, reason]) =>
    el("tr", {}, el("td", { class: "kernel" }, kernel), el("td", { class: "muted" }, reason)),
  );
  const head = el("tr", {}, ...["kernel", "layout", measured ? "time" : "estimate"].map((title, i) => el("th", { class: i === 2 ? "number" : null }, title)));
  const table = (...lines) => el("div", { class: "wide" }, el("table", {}, ...lines));
  return el(
    "div",
    {},
    rows.length ? table(el("thead", {}, head), el("tbody", {}, body)) : null,
    refused.length
      ? el("details", { class: "refusals" }, el("summary", {}, `${refused.length} kernels refused`), table(el("tbody", {}, refused)))
      : null,
  );
}

function rewritesList(ids) {
  const items = (ids || []).map((id) => doc.rewrites[id]).filter(Boolean);
  if (!items.length) return null;
  const lines = (sign, kind, texts) => (texts || []).map((text) => el("div", { class: "mono" }, el("span", { class: kind }, sign), ` ${text}`));
  const item = (rewrite) =>
    el(
      "li",
      {},
      el("strong", {}, rewrite.pass),
      el("span", { class: "muted" }, ` ${(doc.passes || {})[rewrite.pass] || ""}`),
      ...lines("−", "bad", rewrite.removed),
      ...lines("+", "good", rewrite.added),
    );
  return el("ol", { class: "rewrites" }, items.map(item));
}

const BOX_KINDS = { weight: "weights", io: "input or output", state: "state", image: "image" };

function memoryRows(step) {
  const boxes = boxesOf(step);
  const names = new Map((step.arguments || []).filter((argument) => isNumber(argument.box)).map((argument) => [argument.box, argument]));
  const row = (box) => {
    const argument = names.get(box.id);
    const role = argument ? `${argument.name} ${argument.is_read ? "←" : "→"}` : "";
    const place = isNumber(box.offset) ? `arena, from ${box.offset}, steps ${box.first} to ${box.last}` : BOX_KINDS[box.kind] || box.kind;
    const within = isNumber(box.within) ? `, inside ${doc.program.boxes[box.within].label}` : "";
    const label = [el("span", { class: "muted" }, role), " ", el("span", { class: "mono" }, box.label), el("div", { class: "muted" }, place + within)];
    return el("tr", {}, el("td", { class: "name" }, label), el("td", { class: "number" }, formatBytes(box.bytes)));
  };
  return boxes.length ? el("div", { class: "wide" }, el("table", { class: "memory" }, boxes.map(row))) : null;
}

function sourceSection(step) {
  const defines = Object.entries(step.defines || {});
  const text = isNumber(step.source) ? sourceText(step.source) : "";
  if (!text && !defines.length) return [];
  const fold = el("details", { class: "source" }, el("summary", {}, `${doc.sources[step.source]?.name || "source"}: ${text.split("\n").length} lines`));
  // Highlighted when it is opened: a source may have thousands of lines.
  fold.addEventListener("toggle", () => fold.open && fold.children.length === 1 && fold.append(highlighted(text)));
  const macros = defines.length
    ? el("details", { class: "defines" }, el("summary", {}, `${defines.length} defines`), pairs(defines.map(([name, value]) => [name, el("span", { class: "mono" }, String(value))])))
    : null;
  return section("Source", el("p", { class: "mono" }, step.entry || ""), text ? fold : null, macros, step.options ? el("p", { class: "mono muted" }, step.options) : null);
}

const KINDS = { fp32: "32-bit floats", fp16: "16-bit floats", matrix: "matrix units", dot: "8-bit dot products" };

function rooflineText(step) {
  if (!isNumber(step.roof)) return "";
  const kind = KINDS[step.arithmetic] || step.arithmetic || "";
  return [`${formatPercent(step.roof)} of the roofline (${kind}${step.bound ? `, bound by ${step.bound}` : ""})`, bar(step.roof, step.colour)];
}

function programNodeSections(info) {
  return [
    ...section("Kernels considered", candidatesTable(info)),
    ...section("Parameters", Object.keys(info.parameters || {}).length ? pairs(Object.entries(info.parameters).map(([k, v]) => [k, String(v)])) : null),
    ...section("Computes", info.model_nodes?.length ? el("div", {}, ...links(info.model_nodes, modelLink)) : null),
    ...section("Rewrites", rewritesList(info.rewrites)),
  ];
}

function stepDetails(step) {
  const info = step.info || {};
  const rate = step.ms && step.flops ? `${formatRate((1000 * step.flops) / step.ms)}, ${formatBytes((1000 * (step.bytes || 0)) / step.ms)}/s` : "";
  return [
    el("h2", {}, swatch(step.colour), step.group_name),
    el("p", { class: "muted" }, step.title),
    pairs([
      ["step", `${step.id} (${step.kind})`],
      ["in a run", step.times > 1 ? `${step.times} times` : ""],
      ["time", step.ms ? [`${formatMs(step.ms)}, ${formatPercent(step.share)} of all`, bar(step.share, step.colour)] : ""],
      ["estimate", doc.header.is_measured ? formatMs(info.estimated_ms) : ""],
      ["roofline", rooflineText(step)],
      ["work", [formatFlops(step.flops), formatBytes(step.bytes)].filter(Boolean).join(", ")],
      ["rates", rate],
      ["operators", info.operators],
      ["epilogue", info.epilogue ? el("span", { class: "mono" }, info.epilogue) : ""],
      ["outputs", (info.outputs || []).map((text) => el("div", { class: "mono" }, text))],
      ["place", formatList(info.places, ", ")],
      ["why", info.why],
      ["bound", step.roof_words],
      ["grid", formatList(step.grid)],
      ["work-group", step.group?.length ? `${formatList(step.group)}${step.groups ? `, ${step.groups} groups` : ""}` : ""],
    ]),
    ...section("Memory plan", memoryRows(step)),
    ...programNodeSections(info),
    ...sourceSection(step),
  ];
}

function modelDetails(node) {
  const steps = node.launches || [];
  const attributes = Object.entries(node.attributes || {});
  const error = node.error;
  const views = (node.nodes || []).map((id) => doc.program.nodes[id]).filter((info) => !(info.steps || []).length);
  return [
    el("h2", {}, swatch(node.colour), node.op),
    el("p", { class: "muted" }, node.label),
    pairs([
      ["inside", node.scope],
      ["time", node.ms ? `${formatMs(node.ms)} (its share of ${steps.length === 1 ? "the launch" : "the launches"})` : ""],
      ["becomes", steps.length ? links(steps, stepLink) : ""],
      ["", node.fate_words],
      ["inputs", tensors(node.inputs || [])],
      ["outputs", tensors(node.outputs || [])],
      [
        "error",
        error
          ? el("span", { class: error.passed ? "good" : "bad" }, `${error.difference ?? "infinite"} from the NumPy reference, ${error.allowed} allowed: ${error.passed ? "passes" : "fails"}`)
          : "",
      ],
    ]),
    ...section("Attributes", attributes.length ? pairs(attributes.map(([name, value]) => [name, el("span", { class: "mono" }, String(value))])) : null),
    ...section("Rewrites", rewritesList(node.rewrites)),
    ...views.flatMap((info) => [el("h3", {}, `In the program: ${info.name || info.op} (${info.target})`), info.why ? el("p", {}, info.why) : null, candidatesTable(info)]).filter(Boolean),
  ];
}

// Nothing is chosen: the most expensive kernels and a hint.
function overview() {
  const groups = doc.kernels.slice(0, LONG);
  const row = (group) =>
    el(
      "tr",
      {},
      el("td", { class: "kernel" }, swatch(group.colour), group.name),
      el("td", { class: "number" }, String(group.steps)),
      el("td", { class: "number" }, formatMs(group.ms)),
      el("td", { class: "number" }, doc.total ? formatPercent(group.ms / doc.total) : ""),
    );
  const head = ["kernel", "steps", "time", "share"].map((title, i) => el("th", { class: i ? "number" : null }, title));
  return [
    el("h2", {}, "Where the time goes"),
    el("p", { class: "muted" }, "Choose a node of either graph, a bar, a dot or a row: everything known of it appears here."),
    el("div", { class: "wide" }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, groups.map(row)))),
    doc.kernels.length > LONG ? el("p", { class: "muted" }, `and ${doc.kernels.length - LONG} more below the roofline`) : null,
  ].filter(Boolean);
}

function showDetails() {
  const { kind, id } = selection;
  const content = kind === "model" ? modelDetails(doc.graph.nodes[id]) : kind === "step" ? stepDetails(doc.program.steps[id]) : overview();
  const close = el("button", { class: "close", type: "button", "aria-label": "Close", title: "Choose nothing", onclick: () => select(null, null) }, "×");
  byId("details").replaceChildren(...(kind ? [close] : []), ...content);
  document.querySelector("main").toggleAttribute("data-empty", !kind);
  byId("details").scrollTop = 0;
}
