// Elements, numbers as text, colours: what every view needs. Texts of a model are only ever set as text, never as markup.

const byId = (id) => document.getElementById(id);

function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, v] of Object.entries(value)) element.style.setProperty(key, v);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

// The text of an element that holds it compressed: gzip as base64.
async function unpacked(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

function significant(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

function scaled(value, unit, prefixes, step = 1000) {
  if (!isNumber(value)) return "";
  let power = 0;
  while (Math.abs(value) >= step && power < prefixes.length - 1) {
    value /= step;
    power += 1;
  }
  return `${power ? significant(value) : Math.round(value)} ${prefixes[power]}${unit}`;
}

const formatBytes = (value) => scaled(value, "B", ["", "k", "M", "G", "T"]);
const formatFlops = (value) => scaled(value, "FLOP", ["", "k", "M", "G", "T"]);
const formatRate = (value) => scaled(value, "FLOP/s", ["", "k", "M", "G", "T", "P"]);

function formatPercent(value) {
  if (!isNumber(value)) return "";
  const percent = 100 * value;
  if (percent > 0 && percent < 0.1) return "< 0.1 %";
  return `${percent.toFixed(percent >= 100 ? 0 : 1)} %`;
}

function formatMs(value) {
  if (!isNumber(value)) return "";
  return Math.abs(value) < 0.1 && value !== 0 ? `${significant(1000 * value)} µs` : `${significant(value)} ms`;
}

const counted = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;
const formatList = (values, separator = " × ") => (values || []).map(String).join(separator);

// The colours of the theme, read again when it changes.
let palette = {};

function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const names = ["page", "panel", "raised", "line", "strong-line", "text", "muted", "accent", "mark", "on-mark", "edge", "bad", "good"];
  const colours = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c-rest", "c-transfer", "c-host"];
  palette = Object.fromEntries([...names, ...colours].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

const swatch = (colour) => el("span", { class: "swatch", style: { "--swatch": `var(--${colour})` }, "aria-hidden": "true" });

function bar(share, colour = "accent") {
  const width = `${Math.max(0, Math.min(100, 100 * share)).toFixed(1)}%`;
  return el("span", { class: "bar", style: { "--swatch": `var(--${colour})` }, "aria-hidden": "true" }, el("i", { style: { width } }));
}

// Rows of names and values; rows without a value are left out.
function pairs(rows) {
  const list = el("dl");
  for (const [name, value] of rows) {
    if (value === null || value === undefined || value === "" || (Array.isArray(value) && !value.length)) continue;
    list.append(el("dt", {}, name), el("dd", {}, ...(Array.isArray(value) ? value : [value])));
  }
  return list;
}
