// The panel of the chosen node or step.

const linkTo = (kind, id, text) => el("button", { class: "link", type: "button", onclick: () => select(kind, id) }, text);
const modelLink = (id) => linkTo("model", id, `${doc.graph.nodes[id].op} ${doc.graph.nodes[id].label}`);
const stepLink = (id) => linkTo("step", id, `${doc.program.steps[id].group_name} (step ${id})`);
const isInside = (node, holder) => isNumber(node.within) && (node.within === holder.id || isInside(doc.graph.nodes[node.within], holder));
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
  const row = (box) => {
    // One tensor may be several arguments, as where a kernel gets something in the place of a mask that is not there.
    const mine = (step.arguments || []).filter((argument) => argument.box === box.id);
    const role = mine.length ? `${mine.map((argument) => argument.name).join(", ")} ${mine.every((argument) => argument.is_read) ? "←" : "→"}` : "";
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
  const rates = [step.run_flops && formatRate((1000 * step.run_flops) / step.ms), step.run_bytes && `${formatBytes((1000 * step.run_bytes) / step.ms)}/s`];
  return [
    el("h2", {}, swatch(step.colour), linkTo("kernel", step.group_name, step.group_name)),
    el("p", { class: "muted" }, step.title),
    pairs([
      ["step", `${step.id} (${step.kind})`],
      ["in a run", step.times > 1 ? `${step.times} times` : ""],
      ["time", step.ms ? [`${formatMs(step.ms)}, ${formatPercent(step.share)} of all`, bar(step.share, step.colour)] : ""],
      ["estimate", doc.header.is_measured ? formatMs(info.estimated_ms) : ""],
      ["roofline", rooflineText(step)],
      ["work", `${[formatFlops(step.flops || null), formatBytes(step.bytes)].filter(Boolean).join(", ")}${step.times > 1 ? " each time" : ""}`],
      ["rates", step.ms ? rates.filter(Boolean).join(", ") : ""],
      ["error", errorText(info.error)],
      ["operators", info.operators],
      ["epilogue", info.epilogue ? el("span", { class: "mono" }, info.epilogue) : ""],
      ["outputs", (info.outputs || []).map((text) => el("div", { class: "mono" }, text))],
      ["place", formatList(info.places, ", ")],
      ["why", info.why],
      ["bound", step.roof_words],
      ["grid", formatList(step.grid)],
      ["work-group", step.group?.length ? `${formatList(step.group)}${step.groups ? `, ${counted(step.groups, "group")}` : ""}` : ""],
    ]),
    ...section("Memory plan", memoryRows(step)),
    ...programNodeSections(info),
    ...sourceSection(step),
  ];
}

function errorText(error) {
  if (!error) return "";
  const words = `${error.difference ?? "infinite"} from the NumPy reference, ${error.allowed} allowed: ${error.passed ? "passes" : "fails"}`;
  return el("span", { class: error.passed ? "good" : "bad" }, words);
}

// What the flight recorder knows of a node: the error that has gathered at its value, and its own part of it.
function driftText(node) {
  const point = (doc.drift?.points || []).find(({ nodes }) => nodes.includes(node.name));
  return point ? `${errorOf(point.relative)} of the largest value so far, ${errorOf(point.own)} added here, ${decibels(point)}` : "";
}

function modelDetails(node) {
  const steps = node.launches || [];
  const attributes = Object.entries(node.attributes || {});
  const inside = doc.graph.nodes.filter((other) => isInside(other, node));
  const insideMs = inside.reduce((sum, other) => sum + (other.ms || 0), 0);
  const views = (node.nodes || []).map((id) => doc.program.nodes[id]).filter((info) => !(info.steps || []).length);
  return [
    el("h2", {}, swatch(node.colour), node.op),
    el("p", { class: "muted" }, node.label),
    pairs([
      ["inside", node.scope],
      ["time", node.ms ? `${formatMs(node.ms)} (its share of ${steps.length === 1 ? "the launch" : "the launches"})` : ""],
      ["bodies", inside.length ? `${counted(inside.length, "node")}, ${formatMs(insideMs)}` : ""],
      ["becomes", steps.length ? links(steps, stepLink) : ""],
      ["", node.fate_words],
      ["inputs", tensors(node.inputs || [])],
      ["outputs", tensors(node.outputs || [])],
      ["error", errorText(node.error)],
      ["drift", driftText(node)],
    ]),
    ...section("Attributes", attributes.length ? pairs(attributes.map(([name, value]) => [name, el("span", { class: "mono" }, String(value))])) : null),
    ...section("Rewrites", rewritesList(node.rewrites)),
    ...views.flatMap((info) => [el("h3", {}, `In the program: ${info.name || info.op} (${info.target})`), info.why ? el("p", {}, info.why) : null, candidatesTable(info)]).filter(Boolean),
  ];
}

// All launches of one kernel.
function kernelDetails(group) {
  const steps = doc.program.steps.filter((step) => step.group_name === group.name).sort((a, b) => (b.ms || 0) - (a.ms || 0));
  const one = (step) => [stepLink(step.id), ` ${formatMs(step.ms)} `, el("span", { class: "muted" }, step.title)];
  return [
    el("h2", {}, swatch(group.colour), group.name),
    pairs([
      ["time", group.ms ? [`${formatMs(group.ms)}, ${formatPercent(group.ms / doc.total)} of all`, bar(group.ms / doc.total, group.colour)] : ""],
      ["in a run", counted(group.steps, "time")],
      ["work", [formatFlops(group.run_flops || null), formatBytes(group.run_bytes || null)].filter(Boolean).join(", ")],
    ]),
    ...section("Steps, the longest first", el("div", {}, ...links(steps, one))),
  ];
}

// A run as one bar: kernels by colour, transfers, and what is left for the host and for waiting.
function runBar() {
  const whole = Math.max(doc.header.is_measured ? doc.timeline?.run_ms || 0 : 0, doc.total);
  if (!whole) return null;
  const piece = (group) => {
    const said = `${group.name}: ${formatMs(group.ms)}`;
    const act = { onclick: () => select("kernel", group.name), onmouseenter: () => hover("kernel", group.name), onmouseleave: () => hover(null, null) };
    return el("button", { type: "button", title: said, "aria-label": said, style: { width: `${(100 * group.ms) / whole}%`, background: `var(--${group.colour})` }, ...act });
  };
  const rest = whole - doc.total;
  const words = rest > 0.01 * whole ? `Coloured: ${formatMs(doc.total)} of kernels and transfers. The rest of ${formatMs(whole)} is the host's, with a timer at each launch.` : "";
  return el("div", {}, el("div", { class: "run-bar" }, doc.kernels.filter((group) => group.ms > 0).map(piece)), words ? el("p", { class: "muted" }, words) : null);
}

// Nothing is chosen: the most expensive kernels and a hint.
function overview() {
  const groups = doc.kernels.slice(0, LONG);
  const row = (group) =>
    el(
      "tr",
      { class: "row", onclick: () => select("kernel", group.name), onmouseenter: () => hover("kernel", group.name), onmouseleave: () => hover(null, null) },
      el("td", { class: "kernel" }, swatch(group.colour), linkTo("kernel", group.name, group.name)),
      el("td", { class: "number" }, String(group.steps)),
      el("td", { class: "number" }, formatMs(group.ms)),
      el("td", { class: "number" }, doc.total ? formatPercent(group.ms / doc.total) : ""),
    );
  const head = ["kernel", "steps", "time", "share"].map((title, i) => el("th", { class: i ? "number" : null }, title));
  return [
    el("h2", {}, "Where the time goes"),
    runBar(),
    el("p", { class: "muted" }, "Choose a kernel, a node of either graph, a bar, a dot or a row: everything known of it appears here."),
    el("div", { class: "wide" }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, groups.map(row)))),
    doc.kernels.length > LONG ? el("p", { class: "muted" }, `and ${doc.kernels.length - LONG} more below the roofline`) : null,
  ].filter(Boolean);
}

function showDetails() {
  const { kind, id } = selection;
  const content = kind === "model" ? modelDetails(doc.graph.nodes[id]) : kind === "step" ? stepDetails(doc.program.steps[id]) : kind === "kernel" ? kernelDetails(doc.groups.get(id)) : overview();
  const close = el("button", { class: "close", type: "button", "aria-label": "Close", title: "Choose nothing", onclick: () => select(null, null) }, "×");
  byId("details").replaceChildren(...(kind ? [close] : []), ...content);
  document.querySelector("main").toggleAttribute("data-empty", !kind);
  byId("details").scrollTop = 0;
}
