// What part of the rollout is on screen: a time window, a lane height and a scroll position, and how they move.
const plot = $("plot"), overview = $("overview");
const still = window.matchMedia("(prefers-reduced-motion: reduce)");
const view = {
  t0: 0, t1: END_S, laneH: 30, scrollY: 0, // the window in seconds and pixels
  width: 800, height: 500, gutter: 84, top: 28, bottom: 112, // the plot's own layout in pixels
  kinds: DATA.kinds.map(() => true), arrows: true, untrueOnly: false,
  isFresh: true, // not yet moved by the reader: it follows the size of the window
  covered: 0, // pixels of lanes behind the sheet that a phone shows the details in
  turn: -1, message: -1, hover: { turn: -1, message: -1, x: -1, y: -1 },
};
const PAD_S = END_S * 0.015; // room after the deadline, for its line
const LAST_S = END_S + PAD_S;
const LEAST_S = Math.min(LAST_S, Math.max(LAST_S / 4000, 0.25));
const LEAST_LANE = 0.5, MOST_LANE = 64;

const plotWidth = () => Math.max(view.width - view.gutter, 10);
const lanesHeight = () => Math.max(view.height - view.top - view.bottom, 10);
const xOf = (timeS) => view.gutter + ((timeS - view.t0) / (view.t1 - view.t0)) * plotWidth();
const timeAt = (x) => view.t0 + ((x - view.gutter) / plotWidth()) * (view.t1 - view.t0);
const yOf = (lane) => view.top + lane * view.laneH - view.scrollY; // upper edge of a lane
const laneAt = (y) => Math.floor((y - view.top + view.scrollY) / view.laneH);
const inLanes = (x, y) => x >= view.gutter && y >= view.top && y < view.height - view.bottom;
const roomForLanes = () => Math.max(lanesHeight() - view.covered, 40);
const overflow = () => Math.max(0, N_LANES * view.laneH - roomForLanes());
const lanesFit = () => overflow() < 1;

function clampView() {
  const span = Math.min(Math.max(view.t1 - view.t0, LEAST_S), LAST_S);
  view.t0 = Math.min(Math.max(view.t0, 0), LAST_S - span);
  view.t1 = view.t0 + span;
  view.laneH = Math.min(Math.max(view.laneH, LEAST_LANE), MOST_LANE);
  view.scrollY = Math.min(Math.max(view.scrollY, 0), overflow());
}

const drawers = [];
let frame = 0;
function requestDraw() {
  if (!frame) frame = requestAnimationFrame(() => { frame = 0; drawers.forEach((draw) => draw()); });
}

let moving = 0;
function stopMoving() { cancelAnimationFrame(moving); moving = 0; }
function setView(change) { stopMoving(); view.isFresh = false; Object.assign(view, change); clampView(); requestDraw(); }
function moveView(change) { // the same in a short movement, unless the reader wants none
  if (still.matches) { setView(change); return; }
  stopMoving();
  view.isFresh = false;
  const from = { ...view }, started = performance.now();
  const step = (now) => {
    const share = Math.min((now - started) / 220, 1), eased = 1 - (1 - share) ** 3;
    for (const [name, to] of Object.entries(change)) view[name] = from[name] + (to - from[name]) * eased;
    clampView();
    requestDraw();
    moving = share < 1 ? requestAnimationFrame(step) : 0;
  };
  moving = requestAnimationFrame(step);
}

function zoomed(factor, x = view.gutter + plotWidth() / 2) { // the time under x stays where it is
  const centre = timeAt(x), share = (centre - view.t0) / (view.t1 - view.t0);
  const span = Math.min(Math.max((view.t1 - view.t0) / factor, LEAST_S), LAST_S);
  return { t0: centre - span * share, t1: centre + span * (1 - share) };
}
const panned = (dx) => { const dt = (dx / plotWidth()) * (view.t1 - view.t0); return { t0: view.t0 + dt, t1: view.t1 + dt }; };
const comfortable = () => Math.min(Math.max(lanesHeight() / N_LANES, 16), 54);
const wholeRollout = () => ({ t0: 0, t1: LAST_S, scrollY: 0, laneH: comfortable() });
const allLanes = () => ({ t0: 0, t1: LAST_S, scrollY: 0, laneH: Math.max(LEAST_LANE, Math.min(lanesHeight() / N_LANES, 46)) });
function heightened(factor) { // taller or lower lanes around the middle of the screen
  const laneH = Math.min(Math.max(view.laneH * factor, LEAST_LANE), MOST_LANE), middle = lanesHeight() / 2;
  return { laneH, scrollY: ((view.scrollY + middle) / view.laneH) * laneH - middle };
}

function revealing(startS, endS, lanes) { // the least movement that shows a time range and these lanes
  const span = view.t1 - view.t0, change = {};
  if (startS < view.t0 || endS > view.t1) {
    const middle = (startS + endS) / 2, wide = Math.max(span, (endS - startS) * 1.4);
    change.t0 = Math.min(Math.max(middle - wide / 2, 0), Math.max(LAST_S - wide, 0));
    change.t1 = change.t0 + wide;
  }
  const top = Math.min(...lanes) * view.laneH, bottom = (Math.max(...lanes) + 1) * view.laneH, room = roomForLanes();
  if (bottom - top > room || top < view.scrollY) change.scrollY = top - view.laneH;
  else if (bottom > view.scrollY + room) change.scrollY = bottom - room + view.laneH;
  if (change.scrollY !== undefined) change.scrollY = Math.min(Math.max(change.scrollY, 0), overflow());
  return change;
}

// A canvas as sharp as the screen; returns its context with one unit a CSS pixel.
function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1, w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
