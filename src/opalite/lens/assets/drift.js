// Drift along the graph: error, signal to noise and range of every value, and what follows from a tolerance.

const MEASURES = {
  error: { title: "Error", axis: "share of the largest value", isLog: true, series: [["relative", "so far", "c0"], ["own", "added by the node", "c1"]] },
  snr: { title: "Signal to noise", axis: "dB", isLog: false, series: [["snr_db", "signal to noise", "c0"]] },
  range: { title: "Range", axis: "largest magnitude", isLog: true, series: [["magnitude", "largest magnitude", "c0"]] },
};
const HALF_MAX = 65504;

const nameOf = (point) => point.nodes[0] || point.node;

// The model's nodes that a point stands for.
function nodesOfPoint(point) {
  const names = new Set(point.nodes);
  return doc.graph.nodes.filter((node) => names.has(node.name)).map((node) => node.id);
}

const choosePoint = (point, from) => {
  const [first] = nodesOfPoint(point);
  if (isNumber(first)) select("model", first, from);
};

function driftPlot(points, measure, choose) {
  const Bokeh = charts();
  const { isLog, axis, series } = MEASURES[measure];
  const values = points.flatMap((point) => series.map(([key]) => point[key])).filter((v) => isNumber(v) && (!isLog || v > 0));
  if (!values.length) return null;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const ends = isLog ? { start: low / 3, end: Math.max(high, low * 10) * 3 } : { start: Math.min(0, low), end: high * 1.1 || 1 };
  const plot = figure({
    height: 340, x_range: new Bokeh.Range1d({ start: -0.5, end: points.length - 0.5 }), y_range: new Bokeh.Range1d(ends), y_axis_type: isLog ? "log" : "linear",
  });
  plot.xaxes[0].axis_label = "values in order of execution";
  plot.yaxes[0].axis_label = axis;
  // What is exact or infinite has no place on the axis: it lies on its end. An exact value's signal has no noise.
  const isExact = (point, key) => key === "snr_db" && point.relative === 0;
  const height = (value, point, key) => {
    if (!isNumber(value)) return isExact(point, key) || key !== "snr_db" ? ends.end : ends.start;
    return isLog && value <= 0 ? ends.start : value;
  };
  const said = (point, key) => (key === "snr_db" ? decibels(point) : errorOf(point[key]));
  const marks = series.map(([key, words, colourName]) => {
    const colour = palette[colourName];
    const columns = {
      x: points.map((_, index) => index), y: points.map((point) => height(point[key], point, key)), value: points.map((point) => said(point, key)),
      name: points.map(nameOf), operators: points.map((point) => point.operators), kernel: points.map((point) => point.kernel || ""),
    };
    const { source, mark } = linked(columns, (index) => choose(points[index]));
    plot.line({ x: { field: "x" }, y: { field: "y" }, source, line_color: colour, line_width: 1.4, nonselection_line_alpha: 1 });
    const dots = plot.scatter({
      x: { field: "x" }, y: { field: "y" }, source, size: 6, fill_color: colour, line_color: palette.page,
      selection_line_color: palette.accent, selection_line_width: 3, nonselection_fill_alpha: 0.6,
    });
    plot.add_tools(tips(dots, [["", "@operators"], ["node", "@name"], ["kernel", "@kernel"], [words, "@value"]]));
    return (sets) => mark(points.flatMap((point, index) => (nodesOfPoint(point).some((id) => sets.model.has(id)) ? [index] : [])));
  });
  return { plot, mark: (sets) => marks.forEach((m) => m(sets)) };
}

const shortNumber = (value) => (!isNumber(value) ? "" : value === 0 ? "0" : Math.abs(value) >= 1e-3 && Math.abs(value) < 1e5 ? significant(value) : value.toExponential(1));

// JSON has no infinity: what is missing is infinite, but for the signal to noise of an exact value.
const errorOf = (value) => (isNumber(value) ? shortNumber(value) : "infinite");
const rangeOf = (value) => (isNumber(value) ? shortNumber(value) : "not finite");
const decibels = (point) => (isNumber(point.snr_db) ? `${point.snr_db.toFixed(0)} dB` : point.relative === 0 ? "exact" : "no signal");
const beyond = (point, tolerance) => !isNumber(point.relative) || point.relative > tolerance;

// Sentences on a tolerance: where the values first leave it, and the policy that keeps the outputs within it.
function toleranceWords(drift, tolerance) {
  const above = drift.points.filter((point) => beyond(point, tolerance));
  const lines = [el("p", {}, `All ${drift.points.length} values are within it.`)];
  if (above.length) {
    const link = el("button", { class: "link", type: "button", onclick: () => choosePoint(above[0]) }, `${above[0].operators} ${nameOf(above[0])}`);
    lines[0] = el("p", {}, `${above.length} of ${drift.points.length} values are further off, first `, link, ".");
  }
  const policies = drift.policies || [];
  const [cheapest] = policies.filter((policy) => isNumber(policy.error) && policy.error <= tolerance).sort((a, b) => (a.ms ?? 0) - (b.ms ?? 0) || a.fp32.length - b.fp32.length);
  if (!policies.length) return lines;
  if (!cheapest) return [...lines, el("p", {}, "No policy that was tried keeps the outputs within it.")];
  const cost = [cheapest.ms && `${formatMs(cheapest.ms)} expected`, formatBytes(cheapest.bytes)].filter(Boolean).join(", ");
  const names = cheapest.fp32.length ? el("details", {}, el("summary", {}, `${cheapest.fp32.length} nodes stay in fp32`), cheapest.fp32.join(", ")) : null;
  return [...lines, el("p", {}, `Policy: ${cheapest.precision}; outputs differ by ${shortNumber(cheapest.error)}${cost ? `; ${cost}` : ""}.`), names].filter(Boolean);
}

function driftTable(points, from) {
  const columns = [
    { title: "#", value: (point) => point.index, number: true },
    { title: "operators", kind: "kernel", value: (point) => point.operators },
    { title: "node", value: nameOf },
    { title: "error", value: (point) => point.relative ?? Infinity, cell: (point) => errorOf(point.relative), number: true },
    { title: "added", value: (point) => point.own ?? Infinity, cell: (point) => errorOf(point.own), number: true },
    { title: "signal", value: (point) => point.snr_db ?? (point.relative === 0 ? Infinity : -Infinity), cell: decibels, number: true },
    { title: "smallest", value: (point) => point.smallest ?? -Infinity, cell: (point) => rangeOf(point.smallest), number: true },
    { title: "largest", value: (point) => point.largest ?? Infinity, cell: (point) => rangeOf(point.largest), number: true },
    number("near overflow", (point) => point.near_overflow || null, formatPercent),
    number("subnormal", (point) => point.subnormal || null, formatPercent),
    { title: "stored", value: (point) => point.stored },
  ];
  const marked = (point, sets) => nodesOfPoint(point).some((id) => sets.model.has(id));
  return sortedTable(points, columns, { by: 4, choose: (point) => choosePoint(point, from), marked });
}

const driftView = () => {
  const { drift } = doc;
  for (const point of drift.points) {
    const ends = [point.smallest, point.largest];
    point.magnitude = ends.every(isNumber) ? Math.max(...ends.map(Math.abs)) : null; // null: infinite
  }
  let measure = "error";
  let tolerance = drift.allowed || 1e-3;
  return chartView((target) => {
    const words = el("div", { class: "tolerance" });
    const value = el("output");
    const slider = el("input", { type: "range", min: "-7", max: "0", step: "0.1", value: String(Math.log10(tolerance)), "aria-label": "Tolerance" });
    const buttons = Object.entries(MEASURES).map(([key, { title }]) =>
      el("button", { type: "button", "aria-pressed": String(key === measure), onclick: () => ((measure = key), target.redraw()) }, title),
    );
    const keys = MEASURES[measure].series.map(([, name, colour]) => el("span", {}, swatch(colour), name));
    const failed = (drift.outputs || []).filter((output) => !output.passed).map((output) => output.name);
    const verdict = failed.length ? `outputs beyond ${shortNumber(drift.allowed)}: ${failed.join(", ")}` : `all outputs within ${shortNumber(drift.allowed)}`;
    target.append(el("p", {}, `${drift.precision} on ${drift.device} against float64: `, el("span", { class: failed.length ? "bad" : "good" }, verdict)));
    target.append(
      el("div", { class: "toolbar" }, el("span", { role: "group", class: "choices" }, buttons), el("label", {}, "Tolerance ", slider, " ", value), ...keys),
      words,
    );
    const drawn = driftPlot(drift.points, measure, (point) => choosePoint(point, target));
    let line = null;
    if (drawn) {
      // The tolerance, or where half's range ends, which lies in sight only if values come near to it.
      const level = { error: tolerance, range: HALF_MAX }[measure];
      const limit = new (charts().Span)({ location: level ?? null, dimension: "width", line_color: palette.text, line_dash: "dashed" });
      if (level) drawn.plot.add_layout(limit);
      if (measure === "error") line = limit;
      show(drawn.plot, target);
    } else target.append(el("p", { class: "empty" }, "No value has this measure."));
    const follow = () => {
      tolerance = 10 ** Number(slider.value);
      value.textContent = shortNumber(tolerance);
      words.replaceChildren(...toleranceWords(drift, tolerance));
      if (line) line.location = tolerance;
    };
    slider.addEventListener("input", follow);
    follow();
    const table = driftTable(drift.points, target);
    target.append(table.element);
    return (sets) => {
      if (drawn) drawn.mark(sets);
      table.mark(sets);
    };
  });
};
