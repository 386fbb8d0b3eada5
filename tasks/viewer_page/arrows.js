// Messages as arrows, from the moment one was sent to the moment it was shown.
const MOST_ARROWS = 1500; // more at once are a grey area and slow: then every n-th is drawn, and the page says so
let arrowPaths = []; // [showing, x1, y1, x2, y2] of the arrows on screen, for the pointer

function arrowEnds(d) { // from the sender's lane when it was sent to the receiver's when it was shown
  const m = SHOWN.message[d], from = MESSAGES.sender[m], to = SHOWN.agent[d], down = to > from ? 1 : -1, half = barHeight() / 2;
  const middle = view.laneH / 2;
  return [xOf(MESSAGES.time_s[m]), yOf(from) + middle + down * half, xOf(SHOWN.time_s[d]), yOf(to) + middle - down * half];
}
function trace(pen, [x1, y1, x2, y2]) {
  const bend = (y2 - y1) * 0.45;
  pen.moveTo(x1, y1);
  pen.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
}
function drawArrows(pen, list, colour, alpha, width) {
  if (!list.length) return;
  pen.strokeStyle = pen.fillStyle = colour;
  pen.globalAlpha = alpha;
  pen.lineWidth = width;
  pen.beginPath();
  for (const path of list) trace(pen, path);
  pen.stroke();
  const size = Math.min(3 + width, Math.max(view.laneH * 0.25, 1.5));
  pen.beginPath();
  for (const [, y1, x2, y2] of list) {
    const down = y2 > y1 ? 1 : -1;
    pen.moveTo(x2, y2);
    pen.lineTo(x2 - size * 0.6, y2 - down * size * 1.3);
    pen.lineTo(x2 + size * 0.6, y2 - down * size * 1.3);
    pen.closePath();
  }
  pen.fill();
  pen.globalAlpha = 1;
}
function drawMessages(pen, first, last) {
  arrowPaths = [];
  const plain = [], untrue = [], picked = [];
  const inView = [];
  for (let d = 0; d < SHOWN.message.length; d++) {
    const m = SHOWN.message[d], from = MESSAGES.sender[m], to = SHOWN.agent[d];
    if (MESSAGES.time_s[m] > view.t1 || SHOWN.time_s[d] < view.t0 || Math.max(from, to) < first || Math.min(from, to) > last) continue;
    if (m === view.message || isOfTurn(d)) picked.push(d);
    else if (view.arrows && !(view.untrueOnly && MESSAGES.truth[m] !== 0)) inView.push(d);
  }
  const stride = Math.ceil(inView.length / MOST_ARROWS) || 1;
  for (let k = 0; k < inView.length; k += stride) {
    const d = inView[k], ends = arrowEnds(d);
    arrowPaths.push([d, ...ends]);
    (MESSAGES.truth[SHOWN.message[d]] === 0 ? untrue : plain).push(ends);
  }
  const isDimmed = view.message >= 0 || picked.length > 0;
  const count = plain.length + untrue.length, width = count > 400 ? 0.7 : 1.1; // many arrows are drawn thin and pale
  const alpha = Math.min(Math.max(75 / Math.max(count, 1), 0.09), 0.62) * (isDimmed ? 0.35 : 1);
  drawArrows(pen, plain, C.ink, alpha, width);
  drawArrows(pen, untrue, C.purple, Math.min(alpha * 1.4, 0.9), width);
  const strong = picked.map((d) => { const ends = arrowEnds(d); arrowPaths.push([d, ...ends]); return [d, ends]; });
  const thick = strong.length > 40 ? 0.8 : 1.8;
  drawArrows(pen, strong.filter(([d]) => MESSAGES.truth[SHOWN.message[d]] !== 0).map((s) => s[1]), C.ink, 0.95, thick);
  drawArrows(pen, strong.filter(([d]) => MESSAGES.truth[SHOWN.message[d]] === 0).map((s) => s[1]), C.purple, 1, thick);
  Object.assign(drawn, { arrows: arrowPaths.length, arrowsInView: inView.length + picked.length, stride });
}
// Whether a showing belongs to the selected turn: sent by it, or shown to it.
function isOfTurn(d) {
  const i = view.turn;
  if (i < 0) return false;
  const m = SHOWN.message[d];
  return (SHOWN.agent[d] === TURNS.agent[i] && SHOWN.time_s[d] === TURNS.start_s[i]) ||
    (MESSAGES.sender[m] === TURNS.agent[i] && MESSAGES.time_s[m] > TURNS.start_s[i] && MESSAGES.time_s[m] <= TURNS.end_s[i] + 1e-4);
}
