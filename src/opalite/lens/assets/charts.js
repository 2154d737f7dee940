// Charts by Bokeh: the timeline, the roofline and the memory plan. The library is run when the first chart is shown.

function charts() {
  if (!window.Bokeh) {
    document.head.append(el("script", {}, chartsLibrary));
    window.Bokeh.set_log_level("error");
  }
  return window.Bokeh;
}

const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

function figure(options, tools = "xpan,xwheel_zoom,tap,reset", active = "xwheel_zoom") {
  const Bokeh = charts();
  const plot = Bokeh.Plotting.figure({
    sizing_mode: "stretch_width", tools, active_scroll: tools.includes(active) ? active : null, toolbar_location: null, min_border_right: 18,
    background_fill_color: palette.page, border_fill_color: palette.page, outline_line_color: palette.line, ...options,
  });
  for (const axis of [...plot.xaxes, ...plot.yaxes]) {
    axis.setv({
      axis_line_color: palette.line, major_tick_line_color: palette.line, minor_tick_line_color: null, major_label_text_color: palette.muted,
      axis_label_text_color: palette.muted, major_label_text_font: FONT, axis_label_text_font: FONT, axis_label_text_font_style: "normal",
      major_label_text_font_size: "12px", axis_label_text_font_size: "12px",
    });
  }
  for (const grid of [...plot.xgrids, ...plot.ygrids]) grid.setv({ grid_line_color: palette.line, grid_line_alpha: 0.6 });
  return plot;
}

// Colour names of rows as colours of the theme.
const painted = (names) => names.map((name) => palette[name]);

// A source whose taps call choose(index), and which can be told what to mark.
function linked(data, choose) {
  const source = new (charts().ColumnDataSource)({ data });
  let isTold = false;
  source.selected.properties.indices.change.connect(() => {
    const [first] = source.selected.indices;
    if (!isTold && first !== undefined) choose(first);
  });
  const mark = (indices) => {
    isTold = true;
    source.selected.indices = indices;
    isTold = false;
  };
  return { source, mark };
}

function show(plot, target) {
  const place = el("div", { class: "chart" });
  target.append(place);
  return charts().Plotting.show(plot, place);
}

const tips = (renderer, tooltips) => new (charts().HoverTool)({ renderers: [renderer], tooltips, point_policy: "follow_mouse" });

const ROWS = { upload: "transfers", download: "transfers", host: "host", loop: "loops", launch: "device" };

// Events in rows: by kind, and below each other where they overlap or lie inside one another.
function timelineRows(events) {
  const rows = [];
  const placed = new Map();
  const kinds = [...new Set(Object.values(ROWS))];
  for (const kind of kinds) {
    const own = events.filter((event) => (ROWS[event.kind] || "device") === kind).sort((a, b) => a.start_ms - b.start_ms || (a.depth || 0) - (b.depth || 0));
    const ends = [];
    for (const event of own) {
      let row = ends.findIndex((end) => end <= event.start_ms + 1e-9);
      if (row < 0) row = ends.length;
      ends[row] = event.start_ms + event.ms;
      placed.set(event, rows.length + row);
    }
    rows.push(...ends.map((_, i) => (i ? "" : kind)));
  }
  return { rows, placed };
}

function timelinePlot(data, xRange, title, choose) {
  const Bokeh = charts();
  const { events } = data.timeline;
  const { rows, placed } = timelineRows(events);
  const steps = events.map((event) => (isNumber(event.step) ? data.program.steps[event.step] : null));
  const columns = {
    left: events.map((event) => event.start_ms), right: events.map((event) => event.start_ms + event.ms),
    bottom: events.map((event) => placed.get(event) + 0.92), top: events.map((event) => placed.get(event) + 0.08),
    colour: painted(events.map((event, i) => (steps[i] ? steps[i].colour : KIND_COLOURS[event.kind] || "c-rest"))),
    name: events.map((event, i) => steps[i]?.title || event.name || ""), kernel: events.map((event, i) => steps[i]?.group_name || event.kind),
    time: events.map((event) => formatMs(event.ms)), begin: events.map((event) => formatMs(event.start_ms)),
  };
  const { source, mark } = linked(columns, (i) => steps[i] && choose(steps[i].id));
  const plot = figure({
    height: 70 + 34 * rows.length + (title ? 20 : 0), x_range: xRange, y_range: new Bokeh.Range1d({ start: rows.length, end: 0 }),
    ...(title ? { title } : {}),
  });
  if (title) plot.title.setv({ text_color: palette.text, text_font: FONT });
  const bars = plot.quad({
    left: { field: "left" }, right: { field: "right" }, top: { field: "top" }, bottom: { field: "bottom" }, source,
    fill_color: { field: "colour" }, line_color: { field: "colour" }, line_width: 0.6, nonselection_fill_alpha: 0.4, nonselection_line_alpha: 0.4,
  });
  plot.add_tools(tips(bars, [["", "@kernel"], ["node", "@name"], ["takes", "@time"], ["from", "@begin"]]));
  const [axis] = plot.yaxes;
  axis.ticker = new Bokeh.FixedTicker({ ticks: rows.map((_, i) => i + 0.5) });
  axis.major_label_overrides = new Map(rows.map((row, i) => [i + 0.5, row || " "]));
  plot.xaxes[0].axis_label = "ms";
  plot.ygrids[0].grid_line_color = null;
  return { plot, marks: (sets) => mark(steps.flatMap((step, i) => (step && sets.step.has(step.id) ? [i] : []))) };
}

function drawTimelines(target, runs) {
  target.replaceChildren();
  const longest = Math.max(...runs.map(([, data]) => data.timeline?.ms || 0));
  const range = new (charts().Range1d)({ start: 0, end: longest || 1 });
  const plots = runs.filter(([, data]) => data.timeline?.events.length).map(([title, data]) => {
    const choose = (id) => data === doc && select("step", id);
    return timelinePlot(data, range, `${title}: ${formatMs(data.timeline.ms)}`, choose).plot;
  });
  // One layout, because plots zoom together only inside one document of the library.
  if (plots.length) show(new (charts().Column)({ children: plots, sizing_mode: "stretch_width" }), target);
}

// A view whose chart is drawn when it is first shown, and again when the theme changes.
function chartView(draw) {
  const view = el("div", { class: "view" });
  let marks = null;
  let drawn = "";
  view.onshow = () => {
    const theme = document.documentElement.dataset.theme;
    if (drawn === theme) return;
    drawn = theme;
    view.replaceChildren();
    marks = draw(view);
    view.onselect(counterparts(selection.kind, selection.id));
  };
  view.redraw = () => {
    drawn = "";
    view.onshow();
  };
  view.onselect = (sets) => marks && marks(sets);
  view.ontheme = () => view.isConnected && view.onshow();
  return view;
}

// A table below a chart: what is chosen is marked in both.
function withTable(target, table, marks) {
  target.append(table.element);
  return (sets) => {
    marks(sets);
    table.mark(sets);
  };
}

const nothing = (target, sentence) => {
  target.append(el("p", { class: "empty" }, sentence));
  return null;
};

const timelineView = () =>
  chartView((target) => {
    const { events, ms } = doc.timeline || { events: [] };
    if (!events.length) {
      nothing(target, "Nothing was run, and no launch of this plan has an estimate.");
      return withTable(target, stepsTable(), () => {});
    }
    const run = doc.timeline.run_ms;
    const steady = isNumber(doc.header.steady_ms) ? `; without a timer at each launch ${formatMs(doc.header.steady_ms)}` : "";
    const measured = `The median of ${counted(doc.header.runs, "run")}: ${formatMs(run ?? ms)}${isNumber(run) ? `, ${formatMs(ms)} of it from the first event to the last${steady}` : ""}. `;
    const words = doc.header.is_measured ? measured : `Estimates, one after another: ${formatMs(ms)}. `;
    target.append(el("p", {}, words, el("span", { class: "muted" }, "The wheel zooms, dragging pans; click a bar.")));
    const range = new (charts().Range1d)({ start: 0, end: ms || 1 });
    const { plot, marks } = timelinePlot(doc, range, "", (id) => select("step", id, target));
    show(plot, target);
    return withTable(target, stepsTable(), marks);
  });

const giga = (value) => value / 1e9;

// [rate, text, whether a launch uses it] of each roof; roofs that lie close together share a line of text.
function roofLabels(kinds, used) {
  const labels = [];
  for (const [kind, peak] of [...kinds].sort((a, b) => a[1].rate - b[1].rate)) {
    const text = `${KINDS[kind] || kind} ${formatRate(peak.rate)}${peak.is_measured ? "" : " (estimated)"}`;
    const last = labels.at(-1);
    if (last && peak.rate < 1.15 * last[0]) labels[labels.length - 1] = [peak.rate, `${last[1]}, ${text}`, last[2] || used.has(kind)];
    else labels.push([peak.rate, text, used.has(kind)]);
  }
  return labels;
}

const rooflineView = () =>
  chartView((target) => {
    const bandwidth = doc.peaks?.bandwidth?.rate;
    const kinds = Object.entries(doc.peaks || {}).filter(([kind, peak]) => kind !== "bandwidth" && peak.rate);
    const steps = doc.program.steps.filter((step) => step.ms > 0 && step.flops > 0 && step.bytes > 0);
    if (!bandwidth || !kinds.length || !steps.length) return nothing(target, "No peaks are known, or no launch has work to compare with them.");
    const used = new Set(steps.map((step) => step.arithmetic));
    const intensity = steps.map((step) => step.flops / step.bytes);
    const rate = steps.map((step) => (1000 * step.run_flops) / step.ms);
    const highest = Math.max(...kinds.map(([, peak]) => peak.rate), ...rate) * 2.5;
    const ridge = Math.max(...kinds.map(([, peak]) => peak.rate)) / bandwidth;
    const [low, high] = [Math.min(...intensity, 0.5) / 2, Math.max(...intensity, ridge) * 6];
    const lowest = Math.min(...rate) / 2;
    const Bokeh = charts();
    const plot = figure(
      {
        height: Math.max(300, Math.min(560, byId("views").clientHeight - 150)), x_axis_type: "log", y_axis_type: "log",
        x_range: new Bokeh.Range1d({ start: low, end: high }), y_range: new Bokeh.Range1d({ start: giga(lowest), end: giga(highest) }),
      },
      "pan,wheel_zoom,tap,reset", "wheel_zoom",
    );
    for (const [kind, peak] of kinds) {
      const isUsed = used.has(kind);
      const line = { line_color: isUsed ? palette.text : palette["strong-line"], line_width: isUsed ? 1.6 : 1, line_dash: isUsed ? "solid" : "dashed" };
      plot.line([low, peak.rate / bandwidth, high], [low * bandwidth, peak.rate, peak.rate].map(giga), line);
    }
    for (const [rate, text, isUsed] of roofLabels(kinds, used)) {
      plot.text([high], [giga(rate)], [text], { text_align: "right", text_baseline: "bottom", text_color: isUsed ? palette.text : palette.muted, text_font: FONT, text_font_size: "12px", x_offset: -6, y_offset: -2 });
    }
    const most = Math.max(...steps.map((step) => step.share));
    const columns = {
      x: intensity, y: rate.map(giga), colour: painted(steps.map((step) => step.colour)), size: steps.map((step) => 6 + 16 * Math.sqrt(step.share / (most || 1))),
      kernel: steps.map((step) => step.group_name), name: steps.map((step) => step.title), time: steps.map((step) => formatMs(step.ms)),
      rate: rate.map(formatRate), intensity: intensity.map((value) => `${significant(value)} FLOP/B`), roof: steps.map((step) => formatPercent(step.roof)),
    };
    const { source, mark } = linked(columns, (i) => select("step", steps[i].id, target));
    const dots = plot.scatter({
      x: { field: "x" }, y: { field: "y" }, size: { field: "size" }, source, fill_color: { field: "colour" }, fill_alpha: 0.8, line_color: palette.page,
      nonselection_fill_alpha: 0.35, selection_line_color: palette.accent, selection_line_width: 3,
    });
    plot.add_tools(tips(dots, [["", "@kernel"], ["node", "@name"], ["takes", "@time"], ["rate", "@rate"], ["intensity", "@intensity"], ["of the roofline", "@roof"]]));
    plot.xaxes[0].axis_label = "FLOP per byte";
    plot.yaxes[0].axis_label = "GFLOP/s";
    for (const axis of [...plot.xaxes, ...plot.yaxes]) axis.formatter = new Bokeh.NumeralTickFormatter({ format: "0,0.[0000]" });
    const measured = doc.peaks.bandwidth.is_measured ? "" : " (estimated)";
    target.append(el("p", {}, `${formatBytes(bandwidth)}/s of memory${measured}; a dot's size is its share of the time. `, el("span", { class: "muted" }, "Dots above a roof read from the cache, or multiply less than the operator's definition.")));
    show(plot, target);
    return withTable(target, kernelsTable(), (sets) => mark(steps.flatMap((step, i) => (sets.step.has(step.id) ? [i] : []))));
  });

const memoryView = () =>
  chartView((target) => {
    const inArena = (part) => doc.program.boxes.filter((box) => box.part === part && isNumber(box.offset) && box.bytes);
    const parts = doc.program.parts.map((part, id) => [part, inArena(id)]).filter(([, boxes]) => boxes.length);
    if (!parts.length) return nothing(target, "No buffer lies in an arena.");
    const all = parts.map(([part, boxes]) => memoryPart(target, part, boxes));
    return (sets) => all.forEach((marks) => marks(sets));
  });

function memoryPart(target, part, found) {
  const { memory = {} } = part;
  const boxes = [...found].sort((a, b) => isNumber(a.within) - isNumber(b.within));
  const name = part.loop ? `Body of ${part.loop}` : doc.program.parts.length > 1 ? part.name : "";
  const facts = [
    ["arena", memory.arena], ["at least", memory.lower_bound], ["weights", memory.weights], ["inputs and outputs", memory.inputs_outputs], ["images", memory.images],
  ].filter(([, value]) => value).map(([title, value]) => `${title} ${formatBytes(value)}`);
  target.append(name ? el("h3", {}, name) : "", el("p", {}, `${facts.join(", ")}${memory.chosen ? `; placed by ${memory.chosen}` : ""}. `, el("span", { class: "muted" }, "Steps run to the right; a box is as high as its tensor's bytes.")));
  const steps = doc.program.steps;
  const columns = {
    left: boxes.map((box) => box.first - 0.5), right: boxes.map((box) => box.last + 0.5), bottom: boxes.map((box) => box.offset), top: boxes.map((box) => box.offset + box.bytes),
    colour: painted(boxes.map((box) => steps[box.first]?.colour || "c-rest")), label: boxes.map((box) => box.label),
    bytes: boxes.map((box) => formatBytes(box.bytes)), offset: boxes.map((box) => String(box.offset)),
    span: boxes.map((box) => `${box.first} to ${box.last}`), within: boxes.map((box) => doc.program.boxes[box.within]?.label || "–"), alpha: boxes.map((box) => (isNumber(box.within) ? 0.45 : 0.8)),
  };
  const Bokeh = charts();
  const highest = Math.max(...columns.top);
  const [unit, size] = [["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["B", 1]].find(([, bytes]) => highest >= bytes) || ["B", 1];
  for (const key of ["bottom", "top"]) columns[key] = columns[key].map((value) => value / size);
  const { source, mark } = linked(columns, (i) => steps[boxes[i].first] && select("step", boxes[i].first, target));
  const [left, right] = [Math.min(...columns.left), Math.max(...columns.right)];
  const plot = figure(
    { height: Math.max(240, Math.min(480, byId("views").clientHeight - 160)), x_range: new Bokeh.Range1d({ start: left, end: right }), y_range: new Bokeh.Range1d({ start: 0, end: (1.03 * highest) / size }) },
    "pan,wheel_zoom,tap,reset", "wheel_zoom",
  );
  const quads = plot.quad({
    left: { field: "left" }, right: { field: "right" }, top: { field: "top" }, bottom: { field: "bottom" }, source, fill_color: { field: "colour" },
    fill_alpha: { field: "alpha" }, line_color: palette.page, line_width: 1, nonselection_fill_alpha: 0.35, selection_line_color: palette.accent, selection_line_width: 3,
  });
  plot.add_tools(tips(quads, [["", "@label"], ["bytes", "@bytes"], ["from byte", "@offset"], ["steps", "@span"], ["inside", "@within"]]));
  plot.yaxes[0].axis_label = unit;
  plot.xaxes[0].axis_label = "step";
  show(plot, target);
  return (sets) => {
    const used = new Set([...sets.step].flatMap((id) => boxesOf(steps[id])));
    mark(boxes.flatMap((box, i) => (used.has(box) ? [i] : [])));
  };
}
