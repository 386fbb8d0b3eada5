// What stands around the lanes: time axis and grid, names, deadline, return curve, the line under the pointer.
function tickStep(span, room) {
  const rough = span / Math.max(room, 1), power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((k) => k * power).find((step) => step >= rough);
}
function timeTicks() {
  const step = tickStep(view.t1 - view.t0, plotWidth() / 84), found = [];
  for (let k = Math.ceil(view.t0 / step - 1e-9); k * step <= view.t1 + 1e-9; k++) found.push(k * step);
  return { found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

function drawGrid(pen, from, to) {
  pen.fillStyle = C.grid;
  for (const time of timeTicks().found) pen.fillRect(Math.round(xOf(time)), from, 1, to - from);
}

function drawGutter(pen, first, last) {
  pen.fillStyle = C.paper;
  pen.fillRect(0, 0, view.gutter, view.height);
  const size = Math.min(12.5, Math.max(view.laneH * 0.8, 9)), every = Math.ceil(11.5 / view.laneH), isRoomy = view.gutter > 70;
  pen.save();
  pen.beginPath();
  pen.rect(0, view.top, view.gutter, lanesHeight());
  pen.clip();
  for (let l = first; l <= last; l++) {
    const isPicked = view.turn >= 0 && TURNS.agent[view.turn] === l;
    if (!isPicked && (l % every || (l > 0 && l * view.laneH < 18))) continue; // no room for its name
    const y = Math.max(yOf(l) + view.laneH / 2, l ? 0 : view.top + 7 - view.scrollY);
    pen.font = `${AGENTS.is_ceo[l] || isPicked ? 700 : 500} ${size}px ${FONT}`;
    pen.fillStyle = isPicked || AGENTS.is_ceo[l] ? C.ink : C.muted;
    pen.textAlign = "left";
    const name = AGENTS.is_ceo[l] ? "CEO" : AGENTS.name[l];
    pen.fillText(name.length > 9 ? `${name.slice(0, 8)}…` : name, 12, y + 0.5);
    if (isRoomy && view.laneH >= 12 && EARNED_BY[l] > 0) {
      pen.font = `400 ${Math.min(size, 10.5)}px ${FONT}`;
      pen.fillStyle = C.muted;
      pen.textAlign = "right";
      pen.fillText(EARNED_BY[l].toFixed(EARNED_DIGITS), view.gutter - 10, y + 0.5);
    }
  }
  pen.restore();
  pen.textAlign = "left";
  pen.fillStyle = C.grid;
  pen.fillRect(view.gutter - 1, 0, 1, view.height);
}

function drawAxis(pen) {
  pen.fillStyle = C.paper;
  pen.fillRect(0, 0, view.width, view.top);
  pen.fillStyle = C.grid;
  pen.fillRect(0, view.top - 1, view.width, 1);
  const { found, digits } = timeTicks(), [left, right] = deadlineLabel(pen);
  pen.font = `400 11.5px ${FONT}`;
  pen.textAlign = "center";
  for (const time of found) {
    const x = xOf(time);
    if (x < view.gutter - 1 || (x > left - 22 && x < right + 22)) continue;
    pen.fillStyle = C.muted;
    pen.fillText(`${time.toFixed(digits)} s`, Math.max(x, view.gutter + 14), view.top / 2 + 0.5);
  }
  pen.textAlign = "left";
}

const deadlineText = `deadline ${+FACTS.limit_s.toFixed(1)} s`;
function deadlineLabel(pen) { // from where to where it is written, beside the right edge if need be
  const x = xOf(FACTS.limit_s);
  pen.font = `650 11.5px ${FONT}`;
  const wide = pen.measureText(deadlineText).width, left = Math.min(x - wide / 2, view.width - wide - 6);
  return x < view.gutter || x > view.width ? [Infinity, -Infinity] : [left, left + wide];
}
function drawDeadline(pen) {
  const x = xOf(FACTS.limit_s);
  if (x < view.gutter || x > view.width) return;
  pen.fillStyle = C.lane;
  pen.globalAlpha = 0.55;
  pen.fillRect(x, view.top, view.width - x, view.height - view.top);
  pen.globalAlpha = 1;
  pen.fillStyle = C.ink;
  pen.fillRect(x - 1, view.top - 5, 2, view.height - view.top + 5);
  pen.fillText(deadlineText, deadlineLabel(pen)[0], view.top / 2 + 0.5);
}

function drawReturn(pen) {
  const top = view.height - view.bottom, base = view.height - 24, room = base - top - 20, most = Math.max(FACTS.return, 1e-9);
  const yAt = (value) => base - (value / most) * room;
  pen.fillStyle = C.paper;
  pen.fillRect(0, top, view.width, view.bottom);
  pen.fillStyle = C.grid;
  pen.fillRect(0, top, view.width, 1);
  pen.save();
  pen.beginPath();
  pen.rect(view.gutter, top, plotWidth(), view.bottom);
  pen.clip();
  drawGrid(pen, top, base);
  const from = firstWhere(0, REWARDS.time_s.length, (i) => REWARDS.time_s[i] >= view.t0);
  const line = new Path2D();
  line.moveTo(xOf(view.t0), yAt(RETURN_AFTER[from]));
  let k = from;
  for (; k < REWARDS.time_s.length && REWARDS.time_s[k] <= view.t1; k++) {
    line.lineTo(xOf(REWARDS.time_s[k]), yAt(RETURN_AFTER[k]));
    line.lineTo(xOf(REWARDS.time_s[k]), yAt(RETURN_AFTER[k + 1]));
  }
  const end = Math.min(xOf(Math.min(FACTS.limit_s, Math.max(FACTS.end_s, 0))), view.width);
  line.lineTo(Math.max(end, view.gutter), yAt(RETURN_AFTER[k]));
  const area = new Path2D(line);
  area.lineTo(Math.max(end, view.gutter), base);
  area.lineTo(xOf(view.t0), base);
  pen.fillStyle = C.blue;
  pen.globalAlpha = 0.12;
  pen.fill(area);
  pen.globalAlpha = 1;
  pen.strokeStyle = C.blue;
  pen.lineWidth = 1.8;
  pen.lineJoin = "round";
  pen.stroke(line);
  pen.fillStyle = C.muted;
  pen.fillRect(view.gutter, base, plotWidth(), 1);
  pen.fillStyle = C.ink; // a tick for each reward
  for (let r = from; r < k; r++) pen.fillRect(xOf(REWARDS.time_s[r]) - 0.6, base + 4, 1.2, 9);
  pen.restore();
  pen.textAlign = "right";
  pen.font = `400 10.5px ${FONT}`;
  pen.fillStyle = C.muted;
  pen.fillText(FACTS.return.toFixed(2), view.gutter - 8, yAt(most));
  pen.fillText("0", view.gutter - 8, base);
  pen.textAlign = "left";
  pen.font = `600 11.5px ${FONT}`;
  pen.fillStyle = C.ink;
  pen.fillText("return", 12, (yAt(most) + base) / 2);
  pen.font = `400 10.5px ${FONT}`;
  pen.fillStyle = C.muted;
  pen.fillText("rewards", 12, base + 10);
}

function drawCursor(pen) {
  const { x } = view.hover;
  if (x < view.gutter || x > view.width) return;
  const time = timeAt(x);
  pen.fillStyle = C.muted;
  pen.globalAlpha = 0.55;
  pen.fillRect(Math.round(x), view.top, 1, view.height - view.top);
  pen.globalAlpha = 1;
  const text = `${time.toFixed(view.t1 - view.t0 < 8 ? 2 : 1)} s   return ${returnAt(time).toFixed(3)}`;
  pen.font = `500 10.5px ${FONT}`;
  const wide = pen.measureText(text).width, left = Math.min(x + 7, view.width - wide - 8), y = view.height - view.bottom + 12;
  pen.fillStyle = C.paper;
  pen.globalAlpha = 0.88;
  pen.fillRect(left - 3, y - 8, wide + 6, 16);
  pen.globalAlpha = 1;
  pen.fillStyle = C.ink;
  pen.fillText(text, left, y);
}

function drawScroll(pen) {
  if (lanesFit()) return;
  const room = lanesHeight(), all = N_LANES * view.laneH, h = Math.max((room / all) * room, 24);
  pen.fillStyle = C.muted;
  pen.globalAlpha = 0.5;
  pen.beginPath();
  pen.roundRect(view.width - 6, view.top + (view.scrollY / Math.max(overflow(), 1)) * (room - h), 4, h, 2);
  pen.fill();
  pen.globalAlpha = 1;
}
