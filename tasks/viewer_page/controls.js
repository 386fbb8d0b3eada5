// Toolbar, pointer, wheel and touch.
const tooltip = $("tooltip");

function chip(label, tone, count, isOn, change, sample) {
  const button = el("button", { class: "chip", "aria-pressed": String(isOn), tone, onclick: () => {
    const now = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(now));
    change(now);
    requestDraw();
  } }, el("i", { class: sample }), label, count === null ? null : el("b", {}, count.toLocaleString("en")));
  return button;
}
DATA.kinds.forEach((kind, k) => $("chips").append(chip(kind, DATA.colours[k], KIND_TURNS[k], true, (on) => { view.kinds[k] = on; }, "bar")));
$("chips").append(chip("messages", "ink", N_MESSAGES, true, (on) => { view.arrows = on; }, "arrow"));
const nUntrue = MESSAGES.truth.filter((truth) => truth === 0).length;
if (nUntrue) $("chips").append(chip("only untrue", "purple", nUntrue, false, (on) => { view.untrueOnly = on; }, "arrow"));

const actions = {
  "zoom-in": () => moveView(zoomed(1.6)), "zoom-out": () => moveView(zoomed(1 / 1.6)), fit: () => { moveView(wholeRollout()); view.isFresh = true; },
  "rows-taller": () => moveView(heightened(1.35)), "rows-lower": () => moveView(heightened(1 / 1.35)), "rows-all": () => moveView(allLanes()),
  "help-open": () => $("help").showModal(), theme: nextTheme, "toggle-panel": () => (panel.hidden ? openPanel(tab, true) : closePanel()), "close-panel": closePanel,
};
for (const [id, act] of Object.entries(actions)) $(id).addEventListener("click", act);
$("close-help").addEventListener("click", () => $("help").close());
for (const name of Object.keys(bodies)) {
  $(`for-${name}`).addEventListener("click", () => openPanel(name));
  $(`for-${name}`).addEventListener("keydown", (event) => { // arrows move between the tabs
    const names = Object.keys(bodies), by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const next = names[(names.indexOf(name) + by + names.length) % names.length];
    openPanel(next);
    $(`for-${next}`).focus();
    event.preventDefault();
  });
}

function nextTheme() {
  const order = ["auto", "light", "dark"], now = document.documentElement.dataset.theme || "auto";
  setTheme(order[(order.indexOf(now) + 1) % 3]);
}
function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = name;
  $("theme").setAttribute("aria-label", `colour scheme: ${name}`);
  $("theme").title = `Colour scheme: ${name}`;
  readPalette();
  requestDraw();
}
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readPalette(); requestDraw(); });

function place(event) { const r = plot.getBoundingClientRect(); return [event.clientX - r.left, event.clientY - r.top]; }
function tell(x, y) { // what is under the pointer
  const i = turnUnder(x, y), m = i < 0 && view.arrows ? messageUnder(x, y) : -1;
  Object.assign(view.hover, { turn: i, message: m, x, y });
  plot.style.cursor = i >= 0 || m >= 0 || (x < view.gutter && y > view.top) ? "pointer" : "grab";
  tooltip.hidden = i < 0 && m < 0;
  if (i >= 0) {
    tooltip.replaceChildren(el("b", {}, `${agentName(TURNS.agent[i])} · ${kindOf(i)}`), el("span", { class: "said" }, clipped(barLabel(i))),
      el("small", {}, `${seconds(TURNS.start_s[i])} to ${seconds(TURNS.end_s[i])} · ${[codeOf(i), TURNS.earned[i] ? signed(TURNS.earned[i], 4) : wasteOf(i), TURNS.cut[i] ? "cut" : ""].filter(Boolean).join(" · ") || "no result"}`));
  } else if (m >= 0) {
    const value = valueOf(m);
    tooltip.replaceChildren(el("b", {}, `${agentName(MESSAGES.sender[m])} → ${receiverName(m)}`), el("span", { class: "said" }, clipped(DATA.texts[MESSAGES.text[m]])),
      el("small", {}, `sent ${seconds(MESSAGES.time_s[m])}, shown to ${counted(showings(m).length, "agent")}${MESSAGES.truth[m] === 0 ? " · untrue" : ""}${value ? ` · worth ${signed(value[0])}` : ""}`));
  }
  if (!tooltip.hidden) {
    const wide = tooltip.offsetWidth, high = tooltip.offsetHeight;
    tooltip.style.left = `${Math.max(6, Math.min(x + 14, view.width - wide - 6))}px`;
    tooltip.style.top = `${y + 18 + high > view.height ? y - high - 12 : y + 18}px`;
  }
  requestDraw();
}
const clipped = (text) => (text.length > 160 ? `${text.slice(0, 159)}…` : text);
function forget() { Object.assign(view.hover, { turn: -1, message: -1, x: -1, y: -1 }); tooltip.hidden = true; requestDraw(); }

function click(x, y) {
  if (x < view.gutter && y >= view.top && y < view.height - view.bottom) {
    const lane = laneAt(y);
    if (lane >= 0 && lane < N_LANES) selectTurn(turnNear(lane, Math.max(timeAt(view.gutter), 0)));
    return;
  }
  const i = turnUnder(x, y), m = i < 0 ? messageUnder(x, y) : -1;
  if (i >= 0) selectTurn(i);
  else if (m >= 0) selectMessage(m);
  else selectNothing();
}

{
  const held = new Map(); // pointers that are down: id -> [x, y]
  let pressed = null, pinch = 0;
  const spread = () => { const [a, b] = [...held.values()]; return [Math.max(Math.hypot(a[0] - b[0], a[1] - b[1]), 12), (a[0] + b[0]) / 2]; };
  plot.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const [x, y] = place(event);
    stopMoving();
    plot.setPointerCapture(event.pointerId);
    held.set(event.pointerId, [x, y]);
    if (held.size === 1) pressed = { x, y, moved: false };
    else if (pressed) { pressed.moved = true; pinch = spread()[0]; }
  });
  plot.addEventListener("pointermove", (event) => {
    const [x, y] = place(event), before = held.get(event.pointerId);
    if (!before) { if (event.pointerType !== "touch") tell(x, y); return; }
    held.set(event.pointerId, [x, y]);
    if (held.size > 1) {
      const [now, middle] = spread();
      setView(zoomed(now / pinch, middle));
      pinch = now;
      return;
    }
    if (!pressed.moved && Math.hypot(x - pressed.x, y - pressed.y) < 5) return;
    if (!pressed.moved) { pressed.moved = true; forget(); plot.style.cursor = "grabbing"; }
    setView({ ...panned(before[0] - x), scrollY: view.scrollY + before[1] - y });
  });
  const release = (event) => {
    if (!held.delete(event.pointerId)) return;
    const [x, y] = place(event);
    if (event.type === "pointerup" && pressed && !pressed.moved) { plot.focus({ preventScroll: true }); click(x, y); }
    if (!held.size) { pressed = null; plot.style.cursor = "grab"; }
  };
  plot.addEventListener("pointerup", release);
  plot.addEventListener("pointercancel", release);
  plot.addEventListener("pointerleave", forget);
  plot.addEventListener("dblclick", (event) => { const [x, y] = place(event); if (turnUnder(x, y) < 0) moveView(zoomed(2, x)); });
}

function wheel(event) { // over lanes that do not fit the wheel scrolls them; elsewhere, and with Ctrl, it zooms
  event.preventDefault();
  const [x, y] = place(event), unit = event.deltaMode === 1 ? 16 : 1, dx = event.deltaX * unit, dy = event.deltaY * unit;
  const isZoom = event.ctrlKey || event.metaKey || event.altKey;
  if (!isZoom && (event.shiftKey || Math.abs(dx) > Math.abs(dy))) setView(panned(event.shiftKey && !dx ? dy : dx));
  else if (!isZoom && !lanesFit() && y >= view.top && y < view.height - view.bottom) setView({ scrollY: view.scrollY + dy });
  else setView(zoomed(Math.exp(-Math.max(-240, Math.min(240, dy)) * (event.ctrlKey && Math.abs(dy) < 40 ? 0.012 : 0.0022)), Math.max(x, view.gutter)));
  if (view.hover.x >= 0) tell(x, y);
}
plot.addEventListener("wheel", wheel, { passive: false });
overview.addEventListener("wheel", (event) => {
  event.preventDefault();
  setView(zoomed(Math.exp(-Math.max(-240, Math.min(240, event.deltaY)) * 0.0022)));
}, { passive: false });

{ // on a phone the panel is a sheet: its handle is dragged up, or down to close
  let from = null;
  const handle = $("handle");
  handle.addEventListener("pointerdown", (event) => { from = { y: event.clientY, height: panel.offsetHeight }; handle.setPointerCapture(event.pointerId); });
  handle.addEventListener("pointermove", (event) => {
    if (from) panel.style.setProperty("--sheet", `${Math.max(120, Math.min(from.height + from.y - event.clientY, window.innerHeight * 0.92))}px`);
  });
  handle.addEventListener("pointerup", (event) => {
    if (from && event.clientY - from.y > 90 && panel.offsetHeight < window.innerHeight * 0.35) { panel.style.removeProperty("--sheet"); closePanel(); }
    from = null;
  });
  handle.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") closePanel(); });
}
