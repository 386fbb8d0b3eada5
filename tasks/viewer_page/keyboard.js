// The keyboard: every key is listed in the help.
function step(by) { // the earlier or later turn of the lane
  const i = view.turn;
  if (i < 0) { selectTurn(firstVisible()); return; }
  const lane = TURNS.agent[i], next = i + by;
  if (next >= LANE_AT[lane] && next < LANE_AT[lane + 1]) selectTurn(next);
}
function hop(by) { // the turn at that time in the next lane that has turns
  const i = view.turn;
  if (i < 0) { selectTurn(firstVisible()); return; }
  const middle = (TURNS.start_s[i] + TURNS.end_s[i]) / 2;
  for (let lane = TURNS.agent[i] + by; lane >= 0 && lane < N_LANES; lane += by) {
    const found = turnNear(lane, middle);
    if (found >= 0) { selectTurn(found); return; }
  }
}
function firstVisible() {
  const [first, last] = visibleLanes();
  let found = -1;
  visibleTurns(first, last, (i) => { if (found < 0) found = i; });
  return found;
}

const keys = {
  ArrowRight: (event) => (event.shiftKey ? moveView(panned(plotWidth() / 4)) : step(1)),
  ArrowLeft: (event) => (event.shiftKey ? moveView(panned(-plotWidth() / 4)) : step(-1)),
  ArrowDown: (event) => (event.shiftKey ? moveView({ scrollY: view.scrollY + lanesHeight() / 3 }) : hop(1)),
  ArrowUp: (event) => (event.shiftKey ? moveView({ scrollY: view.scrollY - lanesHeight() / 3 }) : hop(-1)),
  PageDown: () => moveView({ scrollY: view.scrollY + lanesHeight() * 0.9 }), PageUp: () => moveView({ scrollY: view.scrollY - lanesHeight() * 0.9 }),
  Home: () => view.turn >= 0 && selectTurn(LANE_AT[TURNS.agent[view.turn]]), End: () => view.turn >= 0 && selectTurn(LANE_AT[TURNS.agent[view.turn] + 1] - 1),
  Enter: () => { if (view.turn >= 0) openPanel("turn", true); },
};
const anywhere = {
  "+": actions["zoom-in"], "=": actions["zoom-in"], "-": actions["zoom-out"], 0: actions.fit, f: actions.fit,
  "[": actions["rows-lower"], "]": actions["rows-taller"], a: actions["rows-all"], m: () => openPanel("messages", true), p: actions["toggle-panel"],
  t: nextTheme, "?": actions["help-open"], Escape: () => { if (!panel.hidden) closePanel(); else selectNothing(); },
};
plot.addEventListener("keydown", (event) => {
  const act = keys[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  act(event);
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  const act = anywhere[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey || $("help").open || event.target.matches("input, select")) return;
  act(event);
  event.preventDefault();
});
