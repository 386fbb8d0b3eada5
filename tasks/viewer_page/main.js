// Puts the page together, and offers what it can do to tests and to the console as window.viewer.
function resize() {
  const r = plot.parentElement.getBoundingClientRect(), isSmall = r.width < 620;
  Object.assign(view, { width: Math.max(r.width, 120), height: Math.max(r.height, 120), gutter: isSmall ? 58 : 104, top: 28, bottom: r.height < 380 ? 76 : 112 });
  Object.assign(strip, { width: view.width, height: overview.parentElement.clientHeight });
  const cover = panel.hidden || window.innerWidth > 700 ? 0 : r.bottom - view.bottom - panel.getBoundingClientRect().top;
  view.covered = Math.max(0, Math.min(cover, lanesHeight() - 60));
  if (view.isFresh) Object.assign(view, wholeRollout());
  clampView();
  requestDraw();
}

function title() {
  $("task").textContent = FACTS.task;
  $("key").textContent = `${FACTS.run}, iteration ${FACTS.iteration}, group ${FACTS.group}, rollout ${FACTS.rollout}`;
  const tile = (name, value, note, id) => el("div", { class: "tile" }, el("dt", {}, name), el("dd", { id: id || false }, value, note ? el("small", {}, note) : null));
  $("facts").append(
    tile("return", FACTS.return.toFixed(3), FACTS.advantage === null ? "" : `advantage ${signed(FACTS.advantage)}`, "fact-return"),
    tile("limit", seconds(FACTS.limit_s, 0), FACTS.end_s < FACTS.limit_s ? `ended at ${seconds(FACTS.end_s)}` : ""),
    tile("stopped", FACTS.stop_reason), tile("hires", String(FACTS.hires), FACTS.fires ? `${FACTS.fires} fired` : ""),
    tile("turns", N_TURNS.toLocaleString("en")), tile("tokens", FACTS.tokens.toLocaleString("en")), tile("policy version", FACTS.versions.join(", ") || "none"));
}

drawers.push(() => {
  const note = $("note"), span = view.t1 - view.t0;
  const whole = span > LAST_S * 0.999 ? "the whole rollout" : `${seconds(view.t0)} to ${seconds(view.t1)}`;
  note.textContent = drawn.stride > 1 ? `${whole} · one in ${drawn.stride} of ${drawn.arrowsInView.toLocaleString("en")} arrows drawn: zoom in for all` : whole;
});

title();
showRollout();
setTheme("auto");
$("for-messages").append(el("b", {}, N_MESSAGES.toLocaleString("en")));
new ResizeObserver(resize).observe(plot.parentElement);
if (window.innerWidth >= 1000) openPanel("rollout"); else resize();
Object.assign(view, wholeRollout());
clampView();
{
  const [, lane, index] = location.hash.match(/^#turn=(\d+)\.(\d+)$/) || [];
  if (lane !== undefined && +lane < N_LANES && LANE_AT[+lane] + +index < LANE_AT[+lane + 1]) selectTurn(LANE_AT[+lane] + +index, true);
}
requestDraw();

window.viewer = {
  data: DATA, view, drawn, selectTurn, selectMessage, openPanel, closePanel, setTheme,
  zoom: (factor) => setView(zoomed(factor)), pan: (seconds_) => setView({ t0: view.t0 + seconds_, t1: view.t1 + seconds_ }), fit: () => setView(wholeRollout()),
  turnOf: (lane, index) => (index < LANE_AT[lane + 1] - LANE_AT[lane] ? LANE_AT[lane] + index : -1),
  barBox: (i) => { const [x, y, w, h] = barBox(i), r = plot.getBoundingClientRect(); return { x: r.left + x, y: r.top + y, width: w, height: h }; },
  arrows: () => arrowPaths.map(([d, x1, y1, x2, y2]) => ({ message: SHOWN.message[d], showing: d, from: [x1, y1], to: [x2, y2] })),
  redraw: () => { drawers.forEach((draw) => draw()); return { ...drawn }; },
};
