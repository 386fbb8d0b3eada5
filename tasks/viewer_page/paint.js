// Colours of the scheme in use, text that can be read on each of them, and the pattern of what was done again.
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif', MONO = 'ui-monospace, "SF Mono", Menlo, Consolas, monospace';
let C = {}; // name -> colour
let inks = {}; // name -> text colour on it
let stripes = {}; // name -> pattern

const channels = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
const mixed = (hex, other, share) => `rgb(${channels(hex).map((c, k) => Math.round(c * share + channels(other)[k] * (1 - share))).join(",")})`;
function luminance(hex) {
  const [r, g, b] = channels(hex).map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
const contrast = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };

function readPalette() {
  const style = getComputedStyle(document.documentElement);
  C = {};
  for (const name of DATA.palette) C[name] = style.getPropertyValue(`--${name}`).trim();
  inks = Object.fromEntries(DATA.palette.map((name) => [name, contrast(C[name], "#ffffff") > contrast(C[name], "#10151c") ? "#ffffff" : "#10151c"]));
  stripes = {};
}
function stripe(context, colour) {
  if (!stripes[colour]) {
    const ratio = window.devicePixelRatio || 1, size = 8, tile = document.createElement("canvas");
    const pen = sharp(tile, size, size);
    pen.fillStyle = C[colour];
    pen.fillRect(0, 0, size, size);
    pen.strokeStyle = C.paper;
    pen.lineWidth = 2.6;
    pen.beginPath();
    for (const k of [-size, 0, size]) { pen.moveTo(k - 1, size + 1); pen.lineTo(k + size + 1, -1); }
    pen.stroke();
    stripes[colour] = context.createPattern(tile, "repeat");
    stripes[colour].setTransform(new DOMMatrix().scale(1 / ratio));
  }
  return stripes[colour];
}
