// The documents of the page, the one that is shown, and what is chosen in it.

const [lensText, chartsLibrary] = await Promise.all([unpacked("lens"), unpacked("charts-library")]);
const lens = JSON.parse(lensText);
const KIND_COLOURS = { upload: "c-transfer", download: "c-transfer", host: "c-host", loop: "c-rest" };

// A document with what the views look up again and again.
function prepare(data) {
  const { graph, program } = data;
  const kernels = new Map();
  for (const [id, step] of program.steps.entries()) {
    step.id = id;
    // A step of a loop runs several times; its time is that of all of them.
    for (const key of ["flops", "bytes"]) step[`run_${key}`] = (step[key] || 0) * (step.times || 1);
    step.info = isNumber(step.node) ? program.nodes[step.node] : null;
    step.models = step.info ? step.info.model_nodes || [] : [];
    step.title = step.info?.name || step.name || "";
    step.group_name = step.kind === "launch" ? step.kernel || step.name : step.kind;
    const group = kernels.get(step.group_name) || { name: step.group_name, kind: step.kind, steps: 0, ms: 0, run_flops: 0, run_bytes: 0 };
    group.steps += step.times || 1;
    for (const key of ["ms", "run_flops", "run_bytes"]) group[key] += step[key] || 0;
    kernels.set(step.group_name, group);
  }
  for (const [id, node] of graph.nodes.entries()) node.id = id;
  data.kernels = [...kernels.values()].sort((a, b) => b.ms - a.ms);
  let rank = 0;
  for (const group of data.kernels) {
    group.colour = KIND_COLOURS[group.kind] || (rank < 8 ? `c${rank++}` : "c-rest");
    kernels.set(group.name, group);
  }
  const total = data.kernels.reduce((sum, group) => sum + group.ms, 0);
  data.total = total;
  data.groups = kernels;
  for (const step of program.steps) {
    step.colour = kernels.get(step.group_name).colour;
    step.share = total ? (step.ms || 0) / total : 0;
  }
  const most = Math.max(...graph.nodes.map((node) => node.ms || 0), 1e-9);
  for (const node of graph.nodes) {
    node.share = (node.ms || 0) / most;
    const first = (node.launches || []).map((id) => program.steps[id]).find((step) => step.kind === "launch");
    node.colour = first ? first.colour : node.fate === "host" ? "c-host" : "c-rest";
    node.label = node.name || (node.outputs || [])[0] || `${node.op} ${node.id}`;
  }
  program.boxes.forEach((box, id) => (box.id = id));
  return data;
}

const documents = lens.documents.map(prepare);
let doc = documents[0];

// One model node, one step or one kernel is chosen; its counterparts in the other graph are marked.
const selection = { kind: null, id: null };
const listeners = { select: [], hover: [], theme: [], document: [] };
const tell = (event, ...values) => listeners[event].forEach((listener) => listener(...values));

function counterparts(kind, id) {
  if (kind === "model") return { model: new Set([id]), step: new Set(doc.graph.nodes[id].launches || []) };
  if (kind === "step") return { model: new Set(doc.program.steps[id].models), step: new Set([id]) };
  if (kind === "kernel") {
    const steps = doc.program.steps.filter((step) => step.group_name === id);
    return { model: new Set(steps.flatMap((step) => step.models)), step: new Set(steps.map((step) => step.id)) };
  }
  return { model: new Set(), step: new Set() };
}

function select(kind, id, from = null) {
  selection.kind = kind;
  selection.id = id;
  tell("select", counterparts(kind, id), from);
}

const hover = (kind, id) => tell("hover", counterparts(kind, id));

function showDocument(index) {
  doc = documents[index];
  selection.kind = selection.id = null;
  tell("document");
}

// The text of a source; pieces are shared between sources.
function sourceText(id, data = doc) {
  const source = data.sources[id];
  return source ? source.pieces.map((piece) => data.pieces[piece]).join("\n\n") : "";
}

const tensorText = (name) => {
  const tensor = doc.graph.tensors[name];
  return tensor?.dtype ? `${tensor.dtype}[${tensor.shape ?? ""}]` : "";
};

// The boxes of memory that a step uses, the ones in an arena first.
function boxesOf(step) {
  const ids = new Set([step.box, ...(step.arguments || []).map((argument) => argument.box)].filter(isNumber));
  return [...ids].map((id) => doc.program.boxes[id]).sort((a, b) => isNumber(b.offset) - isNumber(a.offset));
}
