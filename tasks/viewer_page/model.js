// The rollout as columns, and the questions that the page asks about it. A lane is an agent's row; -1 is "none".
const DATA = JSON.parse(document.getElementById("data").textContent);
const { facts: FACTS, agents: AGENTS, turns: TURNS, messages: MESSAGES, deliveries: SHOWN, rewards: REWARDS } = DATA;
const N_LANES = AGENTS.name.length, N_TURNS = TURNS.agent.length, N_MESSAGES = MESSAGES.time_s.length;
const END_S = TURNS.end_s.reduce((last, timeS) => Math.max(last, timeS), Math.max(FACTS.limit_s, FACTS.end_s, 1e-3));
const AGAIN = new Set(["duplicate", "repost"].map((name) => DATA.wastes.indexOf(name))); // vain as somebody had done it
const wasteOf = (i) => DATA.wastes[TURNS.waste[i]].replace("_", " ").replace("nobody", "told nobody").replace("full hire", "hire when full");
const isAgain = (i) => AGAIN.has(TURNS.waste[i]), isFailed = (i) => TURNS.waste[i] > 0 && !AGAIN.has(TURNS.waste[i]);

function offsets(counts) {
  const at = new Int32Array(counts.length + 1);
  counts.forEach((n, i) => { at[i + 1] = at[i] + n; });
  return at;
}
const READ_AT = offsets(TURNS.n_read), SAID_AT = offsets(TURNS.n_said);

// Turns are ordered by (lane, index): lane l owns the turns LANE_AT[l] .. LANE_AT[l + 1] - 1.
const LANE_AT = offsets(AGENTS.name.map(() => 0));
TURNS.agent.forEach((lane) => { LANE_AT[lane + 1]++; });
for (let l = 0; l < N_LANES; l++) LANE_AT[l + 1] += LANE_AT[l];

// Showings of message m: BY_MESSAGE[MESSAGE_AT[m] .. MESSAGE_AT[m + 1] - 1], in order of time.
const MESSAGE_AT = new Int32Array(N_MESSAGES + 1);
SHOWN.message.forEach((m) => { MESSAGE_AT[m + 1]++; });
for (let m = 0; m < N_MESSAGES; m++) MESSAGE_AT[m + 1] += MESSAGE_AT[m];
const BY_MESSAGE = new Int32Array(SHOWN.message.length);
{
  const next = MESSAGE_AT.slice();
  SHOWN.message.forEach((m, d) => { BY_MESSAGE[next[m]++] = d; });
}

const RETURN_AFTER = [0];
REWARDS.value.forEach((value) => RETURN_AFTER.push(RETURN_AFTER[RETURN_AFTER.length - 1] + value));
const EARNED_BY = new Float64Array(N_LANES);
REWARDS.value.forEach((value, i) => { EARNED_BY[REWARDS.agent[i]] += value; });
const EARNED_DIGITS = Math.max(0, ...EARNED_BY) < 0.1 ? 3 : 2;
const KIND_TURNS = DATA.kinds.map(() => 0), KIND_TOKENS = DATA.kinds.map(() => 0);
TURNS.kind.forEach((kind, i) => { KIND_TURNS[kind]++; KIND_TOKENS[kind] += TURNS.n_said[i]; });

// The first index in lo .. hi - 1 for which `is` holds; hi if there is none. `is` is false, then true.
function firstWhere(lo, hi, is) {
  while (lo < hi) {
    const middle = (lo + hi) >> 1;
    if (is(middle)) hi = middle; else lo = middle + 1;
  }
  return lo;
}

const returnAt = (timeS) => RETURN_AFTER[firstWhere(0, REWARDS.time_s.length, (i) => REWARDS.time_s[i] > timeS)];
const agentName = (lane) => (AGENTS.is_ceo[lane] ? `${AGENTS.name[lane]} (CEO)` : AGENTS.name[lane]);
const toolOf = (i) => DATA.words[TURNS.tool[i]];
const codeOf = (i) => DATA.words[TURNS.code[i]];
const kindOf = (i) => DATA.kinds[TURNS.kind[i]];
const piecesSaid = (i) => TURNS.said.slice(SAID_AT[i], SAID_AT[i + 1]).map((p) => DATA.pieces[p]);
const piecesRead = (i) => TURNS.read.slice(READ_AT[i], READ_AT[i + 1]).map((p) => DATA.pieces[p]);
const logprobsOf = (i) => TURNS.logprobs.slice(SAID_AT[i], SAID_AT[i + 1]);
const saidText = (i) => piecesSaid(i).join(DATA.joint);
const readText = (i) => piecesRead(i).join(DATA.joint);

const labels = new Map();
function barLabel(i) { // one line for a bar: what was said, without a chat template's marks
  if (!labels.has(i)) labels.set(i, piecesSaid(i).filter((p) => !isMark(p)).join(DATA.joint).replace(/\s+/g, " ").trim());
  return labels.get(i);
}
// A single token such as <|im_end|> is the template's own; an agent that writes these letters makes several tokens of them.
const isMark = (piece) => DATA.joint === "" && /^<\|.*\|>$|^<\/?s>$/.test(piece);

function turnStarting(lane, timeS) { // the lane's turn that starts at this time
  const hi = LANE_AT[lane + 1], i = firstWhere(LANE_AT[lane], hi, (k) => TURNS.start_s[k] >= timeS);
  return i < hi && TURNS.start_s[i] === timeS ? i : -1;
}
function turnEnding(lane, timeS) { // the lane's turn that ends at this time or is under way then
  const hi = LANE_AT[lane + 1], i = firstWhere(LANE_AT[lane], hi, (k) => TURNS.end_s[k] >= timeS);
  return i < hi && TURNS.start_s[i] < timeS ? i : -1;
}
function turnNear(lane, timeS) { // the lane's turn whose middle is nearest
  let best = -1, least = Infinity;
  for (let i = LANE_AT[lane]; i < LANE_AT[lane + 1]; i++) {
    const gap = Math.abs((TURNS.start_s[i] + TURNS.end_s[i]) / 2 - timeS);
    if (gap < least) { least = gap; best = i; }
  }
  return best;
}
const shownAt = (i) => range(SHOWN.message.length).filter((d) => SHOWN.agent[d] === TURNS.agent[i] && SHOWN.time_s[d] === TURNS.start_s[i]);
const sentIn = (i) => range(N_MESSAGES).filter((m) => MESSAGES.sender[m] === TURNS.agent[i] &&
  MESSAGES.time_s[m] > TURNS.start_s[i] && MESSAGES.time_s[m] <= TURNS.end_s[i] + 1e-4);
const range = (n) => Array.from({ length: n }, (_, i) => i);
const showings = (m) => Array.from(BY_MESSAGE.subarray(MESSAGE_AT[m], MESSAGE_AT[m + 1]));
const receiverName = (m) => (MESSAGES.receiver[m] < 0 ? "everybody" : agentName(MESSAGES.receiver[m]));
const valueOf = (m) => DATA.values[m] || null; // [mean, low, high]
const HAS_VALUES = Object.keys(DATA.values).length > 0;

const minus = (text) => text.replace("-", "−");
const seconds = (timeS, digits = 1) => `${minus(timeS.toFixed(digits))} s`;
const signed = (value, digits = 3) => (value > 0 ? "+" : "") + minus(value.toFixed(digits));
const counted = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
const percent = (share) => (share >= 0.9995 ? "100%" : share >= 0.0995 ? `${(100 * share).toFixed(share >= 0.995 ? 1 : 0)}%` : `${(100 * share).toPrecision(2)}%`);

// An element with properties, a class (`.name`), and children; text is only ever set as text.
function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "tone") made.style.setProperty("--tone", `var(--${value})`);
    else if (name === "css") Object.entries(value).forEach(([k, v]) => made.style.setProperty(k, v));
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}
const $ = (id) => document.getElementById(id);
