// Every visible text of the page whose colour is too near to what is behind it, and how many texts were looked at.
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const linear = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ratio = (a, b) => {
    const [low, high] = [luminance(rgb(a)), luminance(rgb(b))].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (rgb(colour)[3] === 255) return colour;
    }
    return "#fff";
  };
  const found = [];
  let seen = 0;
  for (const element of document.querySelectorAll("body *")) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!hasText || !element.checkVisibility() || ["SCRIPT", "STYLE"].includes(element.tagName)) continue;
    seen += 1;
    const value = ratio(getComputedStyle(element).color, behind(element));
    if (value < 4.5) found.push([element.tagName, element.className, element.textContent.slice(0, 30), value]);
  }
  // Of the texts on canvases only the colours are known.
  const named = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
  for (const [text, ground] of [["text", "raised"], ["muted", "raised"], ["on-mark", "mark"], ["text", "page"], ["muted", "page"]]) {
    const value = ratio(named(text), named(ground));
    if (value < 4.5) found.push([text, ground, value]);
  }
  return { found, seen };
}
