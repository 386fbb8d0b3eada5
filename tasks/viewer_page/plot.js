// The plot as a whole, and what is under the pointer. Only what is visible is drawn.
const drawn = { bars: 0, arrows: 0, arrowsInView: 0, stride: 1, ms: 0 }; // of the last drawing

function drawPlot() {
  const started = performance.now(), pen = sharp(plot, view.width, view.height), [first, last] = visibleLanes();
  pen.textBaseline = "middle";
  pen.fillStyle = C.paper;
  pen.fillRect(0, 0, view.width, view.height);
  pen.save();
  pen.beginPath();
  pen.rect(view.gutter, view.top, plotWidth(), lanesHeight());
  pen.clip();
  drawLanes(pen, first, last);
  drawGrid(pen, view.top, view.height - view.bottom);
  drawRoster(pen, first, last);
  drawn.bars = 0;
  visibleTurns(first, last, (i) => { drawBar(pen, i); drawn.bars++; });
  drawMessages(pen, first, last);
  if (view.laneH >= 20) visibleTurns(first, last, (i) => drawLabel(pen, i));
  pen.restore();
  drawReturn(pen);
  drawAxis(pen);
  pen.save();
  pen.beginPath();
  pen.rect(view.gutter, 0, plotWidth(), view.height);
  pen.clip();
  drawDeadline(pen);
  drawCursor(pen);
  pen.restore();
  drawGutterAndCorner(pen, first, last);
  drawPicked(pen);
  drawScroll(pen);
  drawn.ms = performance.now() - started;
}
function drawPicked(pen) { // over the edge of the names too, so that a first turn is outlined all around
  pen.save();
  pen.beginPath();
  pen.rect(view.gutter - 4, view.top, plotWidth() + 4, lanesHeight());
  pen.clip();
  if (view.hover.turn >= 0 && view.hover.turn !== view.turn) outline(pen, view.hover.turn, 1.2, 1.5);
  if (view.turn >= 0) outline(pen, view.turn, 2.2, 2.5);
  pen.restore();
}
function drawGutterAndCorner(pen, first, last) {
  const bottom = view.height - view.bottom;
  pen.save();
  pen.beginPath();
  pen.rect(0, 0, view.gutter, bottom);
  pen.clip();
  drawGutter(pen, first, last);
  pen.fillStyle = C.paper;
  pen.fillRect(0, 0, view.gutter, view.top);
  pen.fillStyle = C.grid;
  pen.fillRect(0, view.top - 1, view.gutter, 1);
  pen.font = `400 11px ${FONT}`;
  pen.fillStyle = C.muted;
  pen.fillText(view.gutter > 70 ? `agents (${N_LANES})` : "agents", 12, view.top / 2 + 0.5);
  pen.restore();
  pen.fillStyle = C.grid;
  pen.fillRect(view.gutter - 1, bottom, 1, view.bottom);
}

function turnUnder(x, y) {
  if (!inLanes(x, y)) return -1;
  const lane = laneAt(y);
  if (lane < 0 || lane >= N_LANES) return -1;
  const slack = (3 / plotWidth()) * (view.t1 - view.t0), time = timeAt(x), hi = LANE_AT[lane + 1];
  const first = firstWhere(LANE_AT[lane], hi, (k) => TURNS.end_s[k] >= time - slack);
  for (let i = first; i < hi && TURNS.start_s[i] <= time + slack; i++) {
    if (view.kinds[TURNS.kind[i]] && TURNS.end_s[i] >= time) return i;
  }
  return first < hi && view.kinds[TURNS.kind[first]] && TURNS.start_s[first] <= time + slack ? first : -1;
}
function messageUnder(x, y) { // the arrow within 5 pixels
  if (!inLanes(x, y)) return -1;
  let best = -1, least = 5;
  for (const [d, x1, y1, x2, y2] of arrowPaths) {
    if (x < Math.min(x1, x2) - 5 || x > Math.max(x1, x2) + 5 || y < Math.min(y1, y2) - 5 || y > Math.max(y1, y2) + 5) continue;
    for (let k = 0; k <= 12; k++) { // points of the curve; x is smooth in t, y nearly linear
      const t = k / 12, s = 1 - t, bend = (y2 - y1) * 0.45;
      const px = (s ** 3 + 3 * s * s * t) * x1 + (3 * s * t * t + t ** 3) * x2;
      const py = s ** 3 * y1 + 3 * s * s * t * (y1 + bend) + 3 * s * t * t * (y2 - bend) + t ** 3 * y2;
      const gap = Math.hypot(px - x, (py - y) / Math.max(1, Math.abs(y2 - y1) / 60));
      if (gap < least) { least = gap; best = SHOWN.message[d]; }
    }
  }
  return best;
}
drawers.push(drawPlot);
