// Tables that sort by a click on a heading: steps, kernels, the model's nodes, two runs compared.

// columns: [{title, value(row) to sort by, cell(row) to show, number}]; key(row) gives what a click chooses.
function sortedTable(rows, columns, { by, ascending = false, choose = null, marked = null, limit = 2000 }) {
  let order = { by, ascending };
  const body = el("tbody");
  const elements = new Map();
  const headings = columns.map((column, i) =>
    el("th", { class: column.number ? "number" : null, scope: "col" }, el("button", { type: "button", onclick: () => sort(i) }, column.title)),
  );
  const compare = (a, b) => {
    const [x, y] = [columns[order.by].value(a), columns[order.by].value(b)];
    const empty = (v) => v === null || v === undefined || v === "";
    if (empty(x) || empty(y)) return empty(x) - empty(y);
    const result = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
    return order.ascending ? result : -result;
  };
  function rowElement(row) {
    const cells = columns.map((column) => el("td", { class: column.number ? "number" : column.kind || "name" }, column.cell ? column.cell(row) : String(column.value(row) ?? "")));
    const act = choose && (() => choose(row));
    const onkeydown = act && ((event) => event.key === "Enter" && event.target === event.currentTarget && act());
    return el("tr", act ? { class: "row", tabindex: "0", onclick: act, onkeydown } : {}, cells);
  }
  function fill() {
    elements.clear();
    const shown = [...rows].sort(compare).slice(0, limit);
    body.replaceChildren(...shown.map((row) => (elements.set(row, rowElement(row)), elements.get(row))));
    headings.forEach((heading, i) => heading.setAttribute("aria-sort", i === order.by ? (order.ascending ? "ascending" : "descending") : "none"));
    headings.forEach((heading, i) => (heading.firstChild.textContent = columns[i].title + (i === order.by ? (order.ascending ? " ↑" : " ↓") : "")));
  }
  function sort(i) {
    order = { by: i, ascending: order.by === i ? !order.ascending : !columns[i].number };
    fill();
    mark(current);
  }
  let current = null;
  function mark(sets) {
    current = sets;
    if (!marked || !sets) return null;
    let first = null;
    for (const [row, element] of elements) {
      const isMarked = marked(row, sets);
      element.classList.toggle("marked", isMarked);
      if (isMarked) first = first || element;
    }
    return first;
  }
  fill();
  const more = rows.length > limit ? el("p", { class: "muted" }, `${limit} of ${rows.length} rows`) : null;
  const element = el("div", { class: "table" }, el("table", {}, el("thead", {}, el("tr", {}, headings)), body), more);
  return { element, mark };
}

function tableView({ element, mark }) {
  const view = el("div", { class: "view" }, element);
  view.onselect = (sets, from) => {
    const first = mark(sets);
    if (first && from !== view) first.scrollIntoView({ block: "nearest" });
  };
  return view;
}

const number = (title, value, format) => ({ title, value, cell: (row) => format(value(row)), number: true });

function stepsTable() {
  const most = Math.max(...doc.program.steps.map((step) => step.share), 1e-9);
  const columns = [
    { title: "#", value: (step) => step.id, number: true },
    { title: "kernel", kind: "kernel", value: (step) => step.group_name, cell: (step) => [swatch(step.colour), step.group_name] },
    number("time", (step) => step.ms, formatMs),
    { title: "share", value: (step) => step.share || null, cell: (step) => (step.share ? [formatPercent(step.share), bar(step.share / most, step.colour)] : ""), number: true },
    { title: "node", value: (step) => step.title },
    ...(doc.program.steps.some((step) => step.times > 1) ? [number("times", (step) => step.times, String)] : []),
    number("of roofline", (step) => step.roof, formatPercent),
    number("work", (step) => step.run_flops || null, formatFlops),
    number("traffic", (step) => step.run_bytes || null, formatBytes),
    { title: "bound by", value: (step) => step.bound || "" },
    { title: "place", value: (step) => formatList((step.info?.places || []).map((place) => place.replace("opencl/", "")), ", ") },
  ];
  return sortedTable(doc.program.steps, columns, { by: 2, choose: (step) => select("step", step.id), marked: (step, sets) => sets.step.has(step.id) });
}

function kernelsTable() {
  const columns = [
    { title: "kernel", kind: "kernel", value: (group) => group.name, cell: (group) => [swatch(group.colour), group.name] },
    number("steps", (group) => group.steps, String), // as often as they run
    number("time", (group) => group.ms, formatMs),
    number("share", (group) => (doc.total ? group.ms / doc.total : null), formatPercent),
    number("work", (group) => group.run_flops || null, formatFlops),
    number("rate", (group) => (group.ms && group.run_flops ? (1000 * group.run_flops) / group.ms : null), formatRate),
    number("traffic", (group) => group.run_bytes || null, formatBytes),
    number("bandwidth", (group) => (group.ms && group.run_bytes ? (1000 * group.run_bytes) / group.ms : null), (value) => (value ? `${formatBytes(value)}/s` : "")),
  ];
  const marked = (group) => selection.kind === "kernel" && selection.id === group.name;
  return sortedTable(doc.kernels, columns, { by: 2, choose: (group) => select("kernel", group.name), marked });
}

function nodesView() {
  const columns = [
    { title: "#", value: (node) => node.id, number: true },
    { title: "operator", kind: "kernel", value: (node) => node.op, cell: (node) => [swatch(node.colour), node.op] },
    { title: "name", value: (node) => node.label },
    number("time", (node) => node.ms || null, formatMs),
    { title: "output", kind: "kernel", value: (node) => tensorText((node.outputs || [])[0]) },
    { title: "where it went", kind: "words", value: (node) => node.fate_words || "" },
  ];
  if (doc.graph.nodes.some((node) => node.error)) {
    columns.splice(4, 0, number("error", (node) => node.error?.difference, (value) => (isNumber(value) ? value.toExponential(1) : "")));
  }
  const marked = (node, sets) => sets.model.has(node.id);
  return tableView(sortedTable(doc.graph.nodes, columns, { by: 0, ascending: true, choose: (node) => select("model", node.id), marked }));
}

// What two documents differ in, said by their headers.
function difference(a, b) {
  const facts = [["device", "device"], ["precision", "precision"], ["version", "version"], ["driver", "driver"], ["model", "model"]];
  const said = facts.filter(([key]) => a.header[key] !== b.header[key]).map(([key, name]) => `${name} ${a.header[key]} → ${b.header[key]}`);
  return said.join("; ");
}

const ratioText = (ratio) => (isNumber(ratio) ? `${significant(ratio)} ×` : "");

function comparisonView(comparison) {
  const [before, after] = [documents[comparison.before], documents[comparison.after]];
  const view = el("div", { class: "view" });
  const totals = (title, values, format) => {
    if (!values || values.every((value) => !isNumber(value))) return null;
    const ratio = isNumber(values[0]) && isNumber(values[1]) && values[0] ? values[1] / values[0] : null;
    return el("tr", {}, el("td", {}, title), ...values.map((value) => el("td", { class: "number" }, format(value))), el("td", { class: "number" }, ratioText(ratio)));
  };
  const head = ["", "before", "after", "ratio"].map((title, i) => el("th", { class: i ? "number" : null }, title));
  const whole = (value) => (isNumber(value) ? String(value) : "");
  const rows = [
    totals("launches take", comparison.device_ms, formatMs),
    totals("a run takes", comparison.steady_ms, formatMs),
    totals("with a timer at each launch", comparison.run_ms, formatMs),
    totals("launches", comparison.launches, whole),
    totals("traffic", comparison.bytes, formatBytes),
  ];
  const label = (row) => (row.nodes || []).join(", ");
  const ratio = (row) => (isNumber(row.ms[0]) && isNumber(row.ms[1]) && row.ms[0] ? row.ms[1] / row.ms[0] : null);
  const change = (row) => row.difference_ms ?? (row.ms[1] || 0) - (row.ms[0] || 0);
  const columns = [
    { title: "model nodes", value: label, cell: (row) => shortened(label(row), row.nodes) },
    { title: "operators", value: (row) => row.op || "" },
    number("before", (row) => row.ms[0], formatMs),
    number("after", (row) => row.ms[1], formatMs),
    { title: "difference", value: (row) => Math.abs(change(row)), cell: (row) => el("span", { class: change(row) > 0 ? "bad" : "good" }, `${change(row) > 0 ? "+" : "−"}${formatMs(Math.abs(change(row)))}`), number: true },
    number("ratio", ratio, ratioText),
    { title: "kernel before", kind: "kernel", value: (row) => row.kernel?.[0] || "" },
    { title: "kernel after", kind: "kernel", value: (row) => row.kernel?.[1] || "" },
  ];
  const byName = new Map(documents[0].graph.nodes.map((node) => [node.name, node.id]));
  const choose = (row) => {
    const id = (row.nodes || []).map((name) => byName.get(name)).find(isNumber);
    if (isNumber(id) && doc === documents[0]) select("model", id, view);
  };
  view.append(
    el("p", {}, difference(before, after) || "Both documents are of one model, device, precision and version."),
    el("table", { class: "totals" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows.filter(Boolean))),
    el("h3", {}, "Both runs"),
  );
  const charts = el("div");
  view.append(charts, el("h3", {}, "By the model's nodes, the largest difference first"), sortedTable(comparison.rows, columns, { by: 4, choose }).element);
  view.onshow = () => drawTimelines(charts, [["before", before], ["after", after]]);
  return view;
}

function shortened(text, names) {
  if ((names || []).length <= 3) return text;
  return el("details", {}, el("summary", {}, `${names.slice(0, 2).join(", ")} and ${names.length - 2} more`), text);
}
