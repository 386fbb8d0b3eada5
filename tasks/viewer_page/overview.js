// The strip of the whole rollout with a brush: drag it to pan, its edges to zoom, elsewhere to go there.
const strip = { canvas: document.createElement("canvas"), key: "", width: 800, height: 60 };
const stripX = (timeS) => view.gutter + (timeS / LAST_S) * (strip.width - view.gutter);
const stripTime = (x) => ((x - view.gutter) / (strip.width - view.gutter)) * LAST_S;
const EDGE = 9; // pixels beside an edge that still take hold of it

function paintStrip() { // the turns, painted once for each size, scheme and choice of kinds
  const key = [strip.width, strip.height, window.devicePixelRatio, view.gutter, C.paper, view.kinds].join();
  if (key === strip.key) return;
  strip.key = key;
  const pen = sharp(strip.canvas, strip.width, strip.height), row = (strip.height - 10) / N_LANES;
  pen.fillStyle = C.paper;
  pen.fillRect(0, 0, strip.width, strip.height);
  const thick = Math.max(Math.min(row * 0.8, 9), 0.6), x1 = strip.width;
  pen.fillStyle = C.lane;
  pen.fillRect(view.gutter, 0, x1 - view.gutter, strip.height);
  for (let i = 0; i < N_TURNS; i++) {
    if (!view.kinds[TURNS.kind[i]]) continue;
    const x = stripX(TURNS.start_s[i]), colour = C[DATA.colours[TURNS.kind[i]]];
    pen.fillStyle = TURNS.waste[i] ? mixed(colour, C.lane, 0.5) : colour;
    pen.fillRect(x, 5 + (TURNS.agent[i] + 0.5) * row - thick / 2, Math.max(stripX(TURNS.end_s[i]) - x - 0.4, 0.6), thick);
  }
  pen.fillStyle = C.ink;
  pen.fillRect(stripX(FACTS.limit_s) - 0.75, 0, 1.5, strip.height);
}

function drawOverview() {
  paintStrip();
  const pen = sharp(overview, strip.width, strip.height);
  pen.clearRect(0, 0, strip.width, strip.height);
  pen.drawImage(strip.canvas, 0, 0, strip.width, strip.height);
  const a = stripX(view.t0), b = stripX(view.t1), row = (strip.height - 10) / N_LANES, isAll = lanesFit();
  const top = isAll ? 1 : 5 + (view.scrollY / view.laneH) * row, bottom = isAll ? strip.height - 1 : top + (lanesHeight() / view.laneH) * row;
  const isWhole = view.t1 - view.t0 > LAST_S * 0.999;
  if (!isWhole) {
    pen.fillStyle = C.paper;
    pen.globalAlpha = 0.68;
    pen.fillRect(view.gutter, 0, a - view.gutter, strip.height);
    pen.fillRect(b, 0, strip.width - b, strip.height);
    pen.globalAlpha = 1;
  }
  pen.strokeStyle = C.ink;
  pen.lineWidth = 1.3;
  if (!isAll) { // the lanes on screen
    pen.fillStyle = C.ink;
    pen.globalAlpha = 0.1;
    pen.fillRect(a, top, b - a, Math.max(bottom - top, 2));
    pen.globalAlpha = 1;
  }
  pen.beginPath();
  pen.roundRect(a + 0.7, 0.7, Math.max(b - a - 1.4, 2), strip.height - 1.4, 4);
  pen.stroke();
  pen.fillStyle = C.ink;
  for (const x of [a, b]) {
    pen.beginPath();
    pen.roundRect(Math.min(Math.max(x - 2.5, view.gutter), strip.width - 5), strip.height / 2 - 9, 5, 18, 2.5);
    pen.fill();
  }
  pen.font = `400 11px ${FONT}`;
  pen.textBaseline = "middle";
  pen.fillStyle = C.muted;
  pen.fillText(view.gutter > 70 ? "overview" : "all", 12, strip.height / 2);
}
drawers.push(drawOverview);

{
  let grip = null; // what is held: an edge, or the window with where in it
  const near = (x) => {
    const a = stripX(view.t0), b = stripX(view.t1);
    if (Math.abs(x - a) <= EDGE) return { edge: "t0" };
    if (Math.abs(x - b) <= EDGE) return { edge: "t1" };
    return { inside: x > a && x < b };
  };
  const at = (event) => { const r = overview.getBoundingClientRect(); return [event.clientX - r.left, event.clientY - r.top]; };
  const scrollTo = (y) => (lanesFit() ? {} : { scrollY: ((y - 5) / (strip.height - 10)) * N_LANES * view.laneH - lanesHeight() / 2 });
  overview.addEventListener("pointerdown", (event) => {
    const [x, y] = at(event), span = view.t1 - view.t0;
    overview.setPointerCapture(event.pointerId);
    grip = near(x);
    if (!grip.edge && !grip.inside) setView({ t0: stripTime(x) - span / 2, t1: stripTime(x) + span / 2, ...scrollTo(y) });
    grip.offset = stripTime(x) - view.t0;
  });
  overview.addEventListener("pointermove", (event) => {
    const [x, y] = at(event), span = view.t1 - view.t0;
    if (!grip) { overview.style.cursor = near(x).edge ? "ew-resize" : near(x).inside ? "grab" : "pointer"; return; }
    if (grip.edge === "t0") setView({ t0: Math.min(Math.max(stripTime(x), 0), view.t1 - LEAST_S) });
    else if (grip.edge === "t1") setView({ t1: Math.min(Math.max(stripTime(x), view.t0 + LEAST_S), LAST_S) });
    else setView({ t0: stripTime(x) - grip.offset, t1: stripTime(x) - grip.offset + span, ...scrollTo(y) });
  });
  for (const name of ["pointerup", "pointercancel"]) overview.addEventListener(name, () => { grip = null; });
  overview.addEventListener("dblclick", () => moveView(wholeRollout()));
}
