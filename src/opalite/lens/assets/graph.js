// A graph on a canvas: only boxes and edges inside the window are drawn, so that thousands of nodes pan smoothly.

const CONTROLS = 46; // the height of the buttons below
const PAD = 14; // of frames
const STRIP = 12; // the width of the overview at the right edge
const BOX = { width: 184, height: 44, column: 208, row: 76, margin: 24 };

class GraphPane {
  // boxes: [{id, title, lead, name, colour, share}] beside layout {x, y, edges: [[from, to, bends]], frames}, in grid
  // units. labels(from, to): the text at an edge of a marked box.
  constructor(kind, caption, boxes, layout, labels) {
    this.labels = labels;
    this.kind = kind;
    this.boxes = boxes.map((box, i) => ({ ...box, x: layout.x[i] * BOX.column, y: layout.y[i] * BOX.row }));
    this.byId = new Map(this.boxes.map((box) => [box.id, box]));
    this.edges = layout.edges.map(([from, to, bends]) => this.edgePath(from, to, bends || []));
    this.frames = (layout.frames || []).map(([name, owner, x, y, width, height]) => ({
      name, owner, x: x * BOX.column - PAD, y: y * BOX.row - 2 * PAD,
      width: (width - 1) * BOX.column + BOX.width + 2 * PAD, height: (height - 1) * BOX.row + BOX.height + 3 * PAD,
    }));
    this.width = Math.max(0, ...this.boxes.map((box) => box.x)) + BOX.width;
    this.height = Math.max(0, ...this.boxes.map((box) => box.y)) + BOX.height;
    this.marked = new Set();
    this.hovered = new Set();
    this.view = { x: 0, y: 0, scale: 1 };
    this.canvas = el("canvas", { tabindex: "0", role: "application", "aria-label": `${caption}; arrow keys move between nodes` });
    this.context = this.canvas.getContext("2d");
    const button = (text, label, act) => el("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
    this.element = el(
      "div",
      { class: `pane ${kind === "model" ? "model" : "program"}` },
      this.canvas,
      el("div", { class: "caption" }, caption),
      boxes.length ? "" : el("p", { class: "nothing" }, "Nothing is launched: the host computes what is left. Nodes says where each went."),
      el(
        "div",
        { class: "zoom" },
        button("−", "Zoom out", () => this.zoom(1 / 1.4)),
        button("+", "Zoom in", () => this.zoom(1.4)),
        button("Fit", "Show the whole graph", () => this.fit()),
      ),
    );
    this.texts = new Map();
    this.pointers = new Map();
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  edgePath(from, to, bends) {
    const a = this.byId.get(from);
    const b = this.byId.get(to);
    const half = BOX.width / 2;
    const points = [[a.x + half, a.y + BOX.height]];
    // An edge passes a row of boxes straight down, in the gap that the layout keeps for it.
    for (const [x, y] of bends) {
      const column = x * BOX.column + half;
      points.push([column, y * BOX.row], [column, y * BOX.row + BOX.height]);
    }
    points.push([b.x + half, b.y]);
    const ys = points.map((p) => p[1]);
    const xs = points.map((p) => p[0]);
    const path = new Path2D();
    path.moveTo(...points[0]);
    for (let i = 1; i < points.length; i++) {
      const [[x0, y0], [x1, y1]] = [points[i - 1], points[i]];
      const bend = (y1 - y0) / 2;
      path.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
    }
    return { from, to, path, left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys) };
  }

  resize() {
    const { clientWidth, clientHeight } = this.element;
    if (!clientWidth || !clientHeight) return;
    const first = !this.size;
    const ratio = window.devicePixelRatio || 1;
    this.size = { width: clientWidth, height: clientHeight, ratio };
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
    const [chosen] = this.marked;
    if (first) this.start();
    if (chosen === undefined) this.draw();
    else this.reveal(chosen);
  }

  // The top of the graph at a size that can be read.
  start() {
    const { width, height } = this.size;
    const across = (width - 2 * BOX.margin) / this.width;
    const whole = Math.min(across, (height - 2 * BOX.margin) / this.height);
    const scale = Math.min(1, Math.max(whole, Math.min(across, 1), 0.75));
    // Of a graph that is wider than the window its first box is in the middle, but nothing beside the graph is shown.
    const [first] = this.boxes;
    const isWide = first && this.width * scale > width;
    const middle = isWide ? first.x + BOX.width / 2 : this.width / 2;
    const x = width / 2 - middle * scale;
    const left = Math.max(width - BOX.margin - this.width * scale, Math.min(BOX.margin, x));
    this.view = { scale, x: isWide ? left : x, y: BOX.margin + 12 - (isWide ? first.y * scale : 0) };
  }

  fit() {
    const { width, height } = this.size;
    const scale = Math.min(1, (width - 2 * BOX.margin) / this.width, (height - 2 * BOX.margin) / this.height);
    this.view = { scale, x: (width - this.width * scale) / 2, y: (height - this.height * scale) / 2 };
    this.draw();
  }

  zoom(factor, x = this.size.width / 2, y = this.size.height / 2) {
    const { view } = this;
    const scale = Math.max(0.02, Math.min(3, view.scale * factor));
    view.x = x - ((x - view.x) * scale) / view.scale;
    view.y = y - ((y - view.y) * scale) / view.scale;
    view.scale = scale;
    this.draw();
  }

  // Shows the part of the graph that the overview has at a height of the window.
  jump(y) {
    this.view.y = this.size.height / 2 - (y / this.size.height) * this.height * this.view.scale;
    this.draw();
  }

  pan(dx, dy) {
    this.view.x += dx;
    this.view.y += dy;
    this.draw();
  }

  reveal(id) {
    const box = this.byId.get(id);
    if (!box || !this.size) return;
    const { view, size } = this;
    if (view.scale < 0.4) view.scale = 0.8;
    const x = box.x * view.scale + view.x;
    const y = box.y * view.scale + view.y;
    const [wide, tall] = [BOX.width * view.scale, BOX.height * view.scale + CONTROLS];
    const inside = x >= 0 && y >= 0 && x + wide <= size.width && y + tall <= size.height;
    if (!inside) {
      view.x = size.width / 2 - (box.x + BOX.width / 2) * view.scale;
      view.y = size.height / 2 - (box.y + BOX.height / 2) * view.scale;
    }
    this.draw();
  }

  // The box at a point of the element, if there is one.
  boxAt(x, y) {
    const gx = (x - this.view.x) / this.view.scale;
    const gy = (y - this.view.y) / this.view.scale;
    return this.boxes.find((box) => gx >= box.x && gx <= box.x + BOX.width && gy >= box.y && gy <= box.y + BOX.height) || null;
  }

  // The middle of a box in the element, in pixels.
  middleOf(id) {
    const box = this.byId.get(id);
    const { x, y, scale } = this.view;
    return box && { x: x + (box.x + BOX.width / 2) * scale, y: y + (box.y + BOX.height / 2) * scale };
  }

  // The neighbour of a box: along edges for up and down, along its row for left and right.
  neighbour(id, key) {
    const box = this.byId.get(id);
    if (!box) return this.boxes.length ? this.boxes[0].id : null;
    if (key === "ArrowDown" || key === "ArrowUp") {
      const [from, to] = key === "ArrowDown" ? ["from", "to"] : ["to", "from"];
      const near = this.edges.filter((edge) => edge[from] === id).map((edge) => this.byId.get(edge[to]));
      near.sort((a, b) => Math.abs(a.x - box.x) - Math.abs(b.x - box.x));
      return near.length ? near[0].id : null;
    }
    const side = key === "ArrowRight" ? 1 : -1;
    const row = this.boxes.filter((other) => Math.abs(other.y - box.y) < BOX.row / 2 && side * (other.x - box.x) > 0);
    row.sort((a, b) => side * (a.x - b.x));
    return row.length ? row[0].id : null;
  }

  listen() {
    const { canvas, pointers } = this;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const { x, y } = place(event);
      const unit = event.deltaMode === 1 ? 16 : 1;
      if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY * unit * 0.008), x, y);
      else this.pan(-event.deltaX * unit, -event.deltaY * unit);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.onStrip = this.strip && place(event).x > this.size.width - STRIP;
      if (this.onStrip) this.jump(place(event).y);
      pointers.set(event.pointerId, { ...place(event), start: place(event), moved: false });
    });
    canvas.addEventListener("pointermove", (event) => {
      const now = place(event);
      const last = pointers.get(event.pointerId);
      if (!last) {
        const box = this.boxAt(now.x, now.y);
        canvas.style.cursor = box ? "pointer" : "grab";
        if (this.over !== (box && box.id)) hover(box ? this.kind : null, (this.over = box && box.id));
        return;
      }
      if (this.onStrip) {
        this.jump(now.y);
        last.moved = true;
      } else if (pointers.size === 2) {
        const [a, b] = [...pointers.values()];
        const before = Math.hypot(a.x - b.x, a.y - b.y);
        const middle = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
        const other = last === a ? b : a;
        this.zoom(Math.hypot(now.x - other.x, now.y - other.y) / (before || 1), middle.x, middle.y);
      } else this.pan(now.x - last.x, now.y - last.y);
      last.moved = last.moved || Math.hypot(now.x - last.start.x, now.y - last.start.y) > 4 || pointers.size > 1;
      Object.assign(last, now);
    });
    canvas.addEventListener("pointerup", (event) => {
      const last = pointers.get(event.pointerId);
      pointers.delete(event.pointerId);
      if (!last || last.moved || this.onStrip) return;
      const box = this.boxAt(last.x, last.y);
      if (box) select(this.kind, box.id, this);
      else select(null, null, this);
    });
    canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => {
      if (this.over !== null && this.over !== undefined) hover(null, (this.over = null));
    });
    canvas.addEventListener("dblclick", (event) => this.zoom(1.6, place(event).x, place(event).y));
    canvas.addEventListener("keydown", (event) => {
      if (event.key.startsWith("Arrow")) {
        const mine = this.kind === selection.kind ? selection.id : [...this.marked][0];
        const next = this.neighbour(mine, event.key);
        if (next !== null) {
          select(this.kind, next, this);
          this.reveal(next);
        }
      } else if (event.key === "+" || event.key === "=") this.zoom(1.4);
      else if (event.key === "-") this.zoom(1 / 1.4);
      else if (event.key === "0") this.fit();
      else return;
      event.preventDefault();
    });
  }

  // What fits of a text in the present font. Of a name the end is kept: names of one model begin alike.
  fitted(text, width, isName) {
    const key = `${isName} ${width} ${text}`;
    if (!this.texts.has(key)) {
      const cut = (count) => (count >= text.length ? text : isName ? `…${text.slice(text.length - count)}` : `${text.slice(0, count)}…`);
      let [low, high] = [0, text.length];
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (this.context.measureText(cut(middle)).width <= width) low = middle;
        else high = middle - 1;
      }
      this.texts.set(key, cut(low));
    }
    return this.texts.get(key);
  }

  draw() {
    if (this.drawing || !this.size) return;
    this.drawing = requestAnimationFrame(() => {
      this.drawing = 0;
      this.paint();
    });
  }

  paint() {
    const { context, view, size } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const zoom = view.scale * size.ratio;
    context.setTransform(zoom, 0, 0, zoom, view.x * size.ratio, view.y * size.ratio);
    const left = -view.x / view.scale;
    const top = -view.y / view.scale;
    const right = left + size.width / view.scale;
    const bottom = top + size.height / view.scale;
    const marked = (id) => this.marked.has(id) || this.hovered.has(id);
    for (const frame of this.frames) this.paintFrame(frame);
    for (const strong of [false, true]) {
      context.strokeStyle = strong ? palette.accent : palette.edge;
      context.lineWidth = (strong ? 2 : 1.2) / Math.max(view.scale, 0.35);
      for (const edge of this.edges) {
        if (edge.bottom < top || edge.top > bottom || edge.right < left || edge.left > right) continue;
        if ((marked(edge.from) || marked(edge.to)) === strong) context.stroke(edge.path);
      }
    }
    this.painted = 0;
    for (const box of this.boxes) {
      if (box.x > right || box.x + BOX.width < left || box.y > bottom || box.y + BOX.height < top) continue;
      this.paintBox(box);
      this.painted += 1;
    }
    if (this.labels && this.marked.size === 1 && view.scale > 0.5) this.paintLabels();
    this.paintStrip(top, bottom);
  }

  paintFrame({ name, x, y, width, height }) {
    const { context, view } = this;
    context.fillStyle = palette.panel;
    context.strokeStyle = palette["strong-line"];
    context.lineWidth = 1 / view.scale;
    context.setLineDash([5, 4]);
    context.beginPath();
    context.roundRect(x, y, width, height, 8);
    context.fill();
    context.stroke();
    context.setLineDash([]);
    if (view.scale < 0.28) return;
    context.fillStyle = palette.muted;
    context.font = "12px system-ui, sans-serif";
    context.fillText(this.fitted(name, width - 16, true), x + 8, y + 16);
  }

  // The tensors at the edges of the chosen box: their types and sizes.
  paintLabels() {
    const { context } = this;
    const [chosen] = this.marked;
    const done = new Set();
    context.font = "12px system-ui, sans-serif";
    for (const { from, to } of this.edges) {
      if (from !== chosen && to !== chosen) continue;
      const text = this.labels(from, to);
      const box = this.byId.get(from);
      const at = { x: box.x + BOX.width / 2 + 8, y: box.y + BOX.height + 13 };
      if (!text || done.has(`${from} ${text}`)) continue;
      done.add(`${from} ${text}`);
      context.fillStyle = palette.page;
      context.fillRect(at.x - 3, at.y - 11, context.measureText(text).width + 6, 15);
      context.fillStyle = palette.text;
      context.fillText(text, at.x, at.y);
    }
  }

  // An overview at the right edge: the graph from top to bottom, coloured where the time goes, and the part in the window.
  paintStrip(top, bottom) {
    const { context, size } = this;
    this.strip = this.height * this.view.scale > size.height || top > 0 || bottom < this.height;
    if (!this.strip || !this.height) return;
    context.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
    const [x, unit] = [size.width - STRIP, size.height / this.height];
    context.fillStyle = palette.panel;
    context.fillRect(x, 0, STRIP, size.height);
    for (const box of this.boxes) {
      const length = this.marked.has(box.id) ? STRIP : STRIP * Math.sqrt(box.share || 0);
      if (!length) continue;
      context.fillStyle = this.marked.has(box.id) ? palette.accent : palette[box.colour];
      context.fillRect(x + STRIP - length, box.y * unit, length, Math.max(1.5, BOX.height * unit));
    }
    context.strokeStyle = palette.text;
    context.lineWidth = 1.5;
    const [from, to] = [Math.max(0, top * unit), Math.min(size.height, bottom * unit)];
    context.strokeRect(x + 1, from + 1, STRIP - 2, Math.max(4, to - from - 2));
  }

  paintBox(box) {
    const { context, view } = this;
    const isMarked = this.marked.has(box.id);
    const isFar = view.scale < 0.28; // too small for words: the box is its colour
    context.fillStyle = isMarked ? palette.mark : isFar ? palette[box.colour] : palette.raised;
    context.beginPath();
    context.roundRect(box.x, box.y, BOX.width, BOX.height, 6);
    context.fill();
    const strong = isMarked || this.hovered.has(box.id);
    context.strokeStyle = strong ? palette.accent : palette["strong-line"];
    context.lineWidth = strong ? Math.max(2.5, 1.5 / view.scale) : 1;
    context.stroke();
    if (isFar) return;
    context.fillStyle = palette[box.colour];
    context.fillRect(box.x + 6, box.y + 7, 4, BOX.height - 14);
    const wide = BOX.width - 26;
    context.fillStyle = isMarked ? palette["on-mark"] : palette.text;
    context.font = "600 13px system-ui, sans-serif";
    context.fillText(this.fitted(box.title, wide, false), box.x + 17, box.y + 18);
    context.fillStyle = isMarked ? palette["on-mark"] : palette.muted;
    context.font = "12px system-ui, sans-serif";
    const lead = box.lead ? context.measureText(`${box.lead}  `).width : 0;
    if (box.lead) context.fillText(box.lead, box.x + 17, box.y + 34);
    context.fillText(this.fitted(box.name, wide - Math.ceil(lead), true), box.x + 17 + lead, box.y + 34);
    if (box.share) {
      context.fillStyle = palette[box.colour];
      context.fillRect(box.x + 17, box.y + BOX.height - 5, Math.max(1, wide * box.share), 2.5);
    }
  }

  mark(ids) {
    this.marked = ids;
    this.draw();
  }

  hover(ids) {
    this.hovered = ids;
    this.draw();
  }
}

// Both graphs of the shown document side by side, joined by what is chosen or hovered.
function graphView() {
  const { graph, program, layout } = doc;
  const boxOf = (node) => ({ id: node.id, title: node.op, name: node.label, colour: node.colour, share: node.share });
  const boxes = layout.graph.ids.map((id) => boxOf(graph.nodes[id]));
  const most = Math.max(...program.steps.map((step) => step.share), 1e-9);
  const steps = layout.program.ids.map((id) => {
    const step = program.steps[id];
    return { id, title: step.group_name, lead: formatMs(step.ms), name: step.title, colour: step.colour, share: step.share / most };
  });
  const tensors = new Map(graph.edges.map(([from, to, name]) => [`${from} ${to}`, name]));
  const constant = graph.nodes.length - boxes.length;
  const hidden = constant ? `, ${constant} of constants not drawn` : "";
  const panes = [
    new GraphPane("model", `Model: ${counted(graph.nodes.length, "node")}${hidden}`, boxes, layout.graph, (from, to) => tensorText(tensors.get(`${from} ${to}`))),
    new GraphPane("step", `Program: ${counted(program.steps.length, "step")}`, steps, layout.program),
  ];
  const view = el("div", { class: "view graphs", "data-side": "model" });
  const sides = el("div", { class: "sides", role: "group", "aria-label": "Graph" });
  for (const [side, text] of [["model", "Model"], ["program", "Program"]]) {
    const show = () => {
      view.dataset.side = side;
      for (const button of sides.children) button.setAttribute("aria-pressed", String(button.textContent === text));
    };
    sides.append(el("button", { type: "button", "aria-pressed": String(side === "model"), onclick: show }, text));
  }
  view.append(sides, ...panes.map((pane) => pane.element));
  view.panes = panes;
  const marks = (sets, from, act) =>
    panes.forEach((pane) => {
      pane[act](sets[pane.kind]);
      const [first] = sets[pane.kind];
      if (act === "mark" && from !== pane && first !== undefined) pane.reveal(first);
    });
  view.onselect = (sets, from) => marks(sets, from, "mark");
  view.onhover = (sets) => marks(sets, null, "hover");
  view.ontheme = () => panes.forEach((pane) => pane.draw());
  view.focusable = panes[0].canvas;
  return view;
}
