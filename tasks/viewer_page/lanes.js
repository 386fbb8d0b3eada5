// Lanes: employment, hires and dismissals, turns as bars with what was said in them.
const barHeight = () => (view.laneH >= 9 ? Math.min(view.laneH * 0.64, 30) : Math.max(view.laneH - 1, view.laneH * 0.75));
function barBox(i) { // x, y, width, height of a turn in CSS pixels of the plot
  const x = xOf(TURNS.start_s[i]), h = barHeight();
  return [x, yOf(TURNS.agent[i]) + (view.laneH - h) / 2, Math.max(xOf(TURNS.end_s[i]) - x, 1), h];
}
function visibleLanes() {
  return [Math.max(0, laneAt(view.top)), Math.min(N_LANES - 1, laneAt(view.height - view.bottom))];
}

function drawLanes(pen, first, last) {
  const gap = view.laneH >= 10 ? 1.5 : 0.5;
  for (let l = first; l <= last; l++) {
    const y = yOf(l) + gap, h = view.laneH - 2 * gap;
    const hired = xOf(AGENTS.hired_s[l]), started = xOf(AGENTS.started_s[l]), left = xOf(AGENTS.left_s[l]);
    pen.fillStyle = C.lane;
    pen.fillRect(started, y, Math.max(left - started, 0), h);
    if (started > hired) { // hired, not yet able to act
      pen.globalAlpha = 0.5;
      pen.fillRect(hired, y, Math.min(started, left) - hired, h);
      pen.globalAlpha = 1;
    }
  }
}

function drawRoster(pen, first, last) {
  pen.lineWidth = 1.2;
  const size = Math.min(5.5, Math.max(view.laneH * 0.22, 2));
  for (let l = 0; l < N_LANES; l++) {
    const y = yOf(l) + view.laneH / 2, x = xOf(AGENTS.hired_s[l]);
    if (!AGENTS.is_ceo[l] && x > view.gutter - 8 && x < view.width + 8) {
      if (AGENTS.hired_s[l] > 0 && N_LANES <= 60 && first <= l && last >= 0) {
        pen.strokeStyle = C.green;
        pen.globalAlpha = 0.55;
        pen.beginPath();
        pen.moveTo(x, yOf(0) + view.laneH / 2 + barHeight() / 2);
        pen.lineTo(x, y);
        pen.stroke();
        pen.globalAlpha = 1;
      }
      if (l >= first && l <= last) {
        pen.fillStyle = C.green;
        pen.beginPath();
        pen.moveTo(x - size * 0.2, y - size);
        pen.lineTo(x + size * 1.3, y);
        pen.lineTo(x - size * 0.2, y + size);
        pen.fill();
      }
    }
    if (AGENTS.fired[l] && l >= first && l <= last) {
      const end = xOf(AGENTS.left_s[l]);
      pen.strokeStyle = C.vermillion;
      pen.lineWidth = 2;
      pen.beginPath();
      pen.moveTo(end - size, y - size); pen.lineTo(end + size, y + size);
      pen.moveTo(end + size, y - size); pen.lineTo(end - size, y + size);
      pen.stroke();
      pen.lineWidth = 1.2;
    }
  }
}

function box(pen, x, y, w, h) {
  pen.beginPath();
  if (h >= 11 && w >= 6) pen.roundRect(x, y, w, h, 3); else pen.rect(x, y, w, h);
}

function drawBar(pen, i) {
  const [x, y, full, h] = barBox(i), w = Math.max(full - (full > 4 ? 1 : full * 0.2), 0.8);
  const name = DATA.colours[TURNS.kind[i]], colour = C[name], isSmall = h < 6 || w < 5;
  if (isFailed(i)) {
    pen.fillStyle = mixed(colour, C.paper, isSmall ? 0.4 : 0.16);
    box(pen, x, y, w, h);
    pen.fill();
    if (!isSmall) {
      pen.strokeStyle = colour;
      pen.lineWidth = 1.5;
      box(pen, x + 0.75, y + 0.75, w - 1.5, h - 1.5);
      pen.stroke();
    }
  } else {
    pen.fillStyle = !isAgain(i) ? colour : isSmall ? mixed(colour, C.paper, 0.6) : stripe(pen, name);
    box(pen, x, y, w, h);
    pen.fill();
  }
  const spoken = TURNS.end_s[i] - TURNS.start_s[i] - TURNS.tool_s[i];
  if (w > 14 && h >= 9 && TURNS.tool_s[i] > 0 && !isFailed(i)) { // a dark foot while it reads and speaks, before the tool runs
    const foot = h > 16 ? 4 : 2.5;
    pen.fillStyle = "rgba(8, 14, 22, 0.42)";
    pen.beginPath();
    pen.roundRect(x, y + h - foot, Math.min(spoken / (view.t1 - view.t0) * plotWidth(), w), foot, [0, 0, 0, h >= 11 ? 3 : 0]);
    pen.fill();
  }
  if (TURNS.cut[i] && !isSmall) { // a torn end
    pen.fillStyle = C.paper;
    pen.beginPath();
    const teeth = Math.max(2, Math.round(h / 5)), tooth = h / teeth;
    pen.moveTo(x + w + 0.5, y);
    for (let k = 0; k < teeth; k++) { pen.lineTo(x + w - 4, y + (k + 0.5) * tooth); pen.lineTo(x + w + 0.5, y + (k + 1) * tooth); }
    pen.fill();
  }
  if (TURNS.earned[i] && h >= 4) {
    pen.fillStyle = C.ink;
    pen.fillRect(Math.min(x + w - 1, xOf(TURNS.end_s[i]) - 1), y - Math.min(3, h * 0.2), 2, h + 2 * Math.min(3, h * 0.2));
  }
}

function drawLabel(pen, i) {
  const [x, y, w, h] = barBox(i), from = Math.max(x, view.gutter) + 6, room = Math.min(x + w, view.width) - from - 5;
  if (room < 24 || h < 13) return;
  const size = h >= 18 ? 11.5 : 10.5, letters = Math.floor(room / (size * 0.605)), text = barLabel(i);
  if (letters < 3) return;
  const name = DATA.colours[TURNS.kind[i]], isPale = TURNS.waste[i] > 0;
  const shown = text.length <= letters ? text : `${text.slice(0, letters - 1)}…`;
  pen.font = `500 ${size}px ${MONO}`;
  if (isAgain(i)) { // a plate under the text, for the stripes
    pen.fillStyle = C.paper;
    pen.globalAlpha = 0.86;
    pen.fillRect(from - 3, y + 2, Math.min(shown.length * size * 0.605 + 6, room + 6), h - 4);
    pen.globalAlpha = 1;
  }
  pen.fillStyle = isPale ? C.ink : inks[name];
  pen.fillText(shown, from, y + h / 2 + 0.5);
}

function visibleTurns(first, last, use) {
  for (let l = first; l <= last; l++) {
    const hi = LANE_AT[l + 1];
    for (let i = firstWhere(LANE_AT[l], hi, (k) => TURNS.end_s[k] >= view.t0); i < hi && TURNS.start_s[i] <= view.t1; i++) {
      if (view.kinds[TURNS.kind[i]]) use(i);
    }
  }
}

function outline(pen, i, width, grow) {
  const [x, y, w, h] = barBox(i);
  pen.strokeStyle = C.ink;
  pen.lineWidth = width;
  pen.beginPath();
  pen.roundRect(x - grow, y - grow, w + 2 * grow, h + 2 * grow, Math.min(4, h / 2));
  pen.stroke();
}
