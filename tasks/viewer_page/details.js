// The side panel: what the rollout was, and one turn to read.
const panel = $("panel"), bodies = { rollout: $("tab-rollout"), turn: $("tab-turn"), messages: $("tab-messages") };
let tab = "rollout";

const fact = (name, value, title) => [el("dt", title ? { title } : {}, name), el("dd", {}, value)];
const badge = (text, tone, isHollow) => el("span", { class: isHollow ? "badge hollow" : "badge", tone }, text);
const heading = (text, note) => el("h3", {}, text, note ? el("small", {}, note) : null);

function outcomeBadges(i) {
  const found = [];
  if (TURNS.earned[i]) found.push(badge(`earned ${signed(TURNS.earned[i], 4)}`, "ink", true));
  if (TURNS.waste[i]) found.push(badge(`waste: ${wasteOf(i)}`, "vermillion", true));
  if (TURNS.cut[i]) found.push(badge("cut: no effect", "muted", true));
  return found;
}

// Tokens as chips: the meter below each says how likely it was, by length and by colour.
const likelihood = (p) => (p >= 0.5 ? "blue" : p >= 0.1 ? "orange" : "vermillion");
function tokenStrip(pieces, logprobs) {
  const out = el("output", { class: "readout", "aria-live": "off" }, "Blue: 50% or likelier, orange: 10 to 50%, red: below 10%. Point at a token for its logprob.");
  const isShort = pieces.length <= 24;
  const tell = (k) => { out.textContent = `“${pieces[k].trim() || pieces[k].replace(/\n/g, "⏎") || "…"}”  logprob ${minus(logprobs[k].toFixed(3))}, probability ${percent(Math.exp(logprobs[k]))}`; };
  const chips = pieces.map((piece, k) => {
    const p = Math.exp(logprobs[k]);
    return el("span", {
      class: isShort ? "token" : "token tight", role: "listitem", tabindex: isShort ? "0" : false, tone: likelihood(p), css: { "--p": `${(100 * p).toFixed(1)}%` },
      "aria-label": `${piece}, probability ${percent(p)}`, onpointerenter: () => tell(k), onfocus: () => tell(k),
    }, el("span", { class: isMark(piece) ? "mark" : "" }, piece.replace(/\n/g, isShort ? "⏎" : "⏎\n") || "·"), isShort ? el("small", {}, percent(p)) : null);
  });
  const total = logprobs.reduce((sum, value) => sum + value, 0);
  const whole = `${counted(pieces.length, "token")}, logprob ${minus(total.toFixed(3))} together; a token at ${percent(Math.exp(total / Math.max(pieces.length, 1)))} on average (geometric).`;
  return [el("div", { class: "tokens", role: "list", "aria-label": "sampled tokens" }, chips), out, el("p", { class: "note" }, whole)];
}

function textOf(pieces, marked = new Set()) { // the exact text; the template's own tokens and repeated words stand out
  const out = el("pre", { class: "words" });
  pieces.forEach((piece, k) => {
    if (k && DATA.joint) out.append(DATA.joint);
    if (isMark(piece)) out.append(el("span", { class: "mark" }, piece));
    else if (marked.has(piece)) out.append(el("mark", {}, piece));
    else out.append(piece);
  });
  return out;
}

function messageLine(m, note) {
  const flags = truthBadge(m);
  return el("li", {}, el("button", { class: "line", onclick: () => selectMessage(m) },
    el("b", {}, `${agentName(MESSAGES.sender[m])} → ${receiverName(m)}`), el("span", { class: "said" }, DATA.texts[MESSAGES.text[m]]),
    el("small", {}, note, flags ? " · " : "", flags)));
}
function truthBadge(m) {
  if (MESSAGES.truth[m] < 0) return null;
  return el("span", { class: MESSAGES.truth[m] ? "flag" : "flag bad" }, MESSAGES.truth[m] ? "true" : "untrue");
}

function earlier(i) { // the turns before it in the same context, which the agent still had before it
  const found = [];
  for (let k = i - 1; k >= LANE_AT[TURNS.agent[i]] && TURNS.context[k] === TURNS.context[i]; k--) found.unshift(k);
  return found;
}
function contextSection(i) {
  const before = earlier(i);
  if (!before.length) return null;
  const tokens = before.reduce((sum, k) => sum + TURNS.n_read[k] + TURNS.n_said[k], 0);
  const body = el("div");
  const details = el("details", {}, el("summary", {}, `Earlier in its context: ${counted(before.length, "turn")}, ${counted(tokens, "token")}`), body);
  details.addEventListener("toggle", () => {
    if (!details.open || body.childElementCount) return;
    before.forEach((k) => body.append(el("h4", {}, `turn ${TURNS.index[k] + 1}, ${seconds(TURNS.start_s[k])}`), textOf(piecesRead(k)), textOf(piecesSaid(k))));
  });
  return details;
}

function turnFacts(i) {
  const tool = toolOf(i), spoken = TURNS.end_s[i] - TURNS.start_s[i] - TURNS.tool_s[i];
  const advantage = FACTS.advantage === null ? "not known: its group is not in the folder" : signed(FACTS.advantage, 4);
  return el("dl", { class: "grid" },
    fact("time", `${seconds(TURNS.start_s[i], 2)} to ${seconds(TURNS.end_s[i], 2)}`),
    fact("duration", `${seconds(TURNS.end_s[i] - TURNS.start_s[i], 2)}: ${seconds(Math.max(spoken, 0), 2)} reading and speaking, ${seconds(TURNS.tool_s[i], 2)} tool`),
    fact("tool", tool || "none"), fact("result", codeOf(i) || (TURNS.cut[i] ? "none: cut before its end" : "none")),
    fact("prompt tokens", `${TURNS.prompt_tokens[i]} new, of ${TURNS.n_read[i]} read`, "New to this agent, which the clock charges"),
    fact("sampled", `${counted(TURNS.n_said[i], "token")}, policy version ${TURNS.version[i]}`),
    fact("context", `number ${TURNS.context[i] + 1}`),
    fact("advantage", advantage, "The rollout's return minus its group's mean: the same for every token of every agent"));
}

function showTurn(i) {
  const lane = TURNS.agent[i], said = piecesSaid(i), shown = shownAt(i), sent = sentIn(i);
  const marked = new Set(DATA.joint ? said.filter((p) => p.length > 1) : []);
  const step = (by) => el("button", { class: "icon", "aria-label": by < 0 ? "earlier turn" : "later turn", disabled: i + by < LANE_AT[lane] || i + by >= LANE_AT[lane + 1], onclick: () => selectTurn(i + by) }, by < 0 ? "‹" : "›");
  const count = LANE_AT[lane + 1] - LANE_AT[lane];
  bodies.turn.replaceChildren(
    el("div", { class: "top" }, el("h2", {}, agentName(lane)), el("span", { class: "count" }, step(-1), `turn ${i - LANE_AT[lane] + 1} of ${count}`, step(1))),
    el("p", { class: "badges" }, badge(kindOf(i), DATA.colours[TURNS.kind[i]]), outcomeBadges(i)),
    heading("What it said"), ...tokenStrip(said, logprobsOf(i)),
    heading("What it saw", marked.size ? "words that it repeated are marked" : ""), textOf(piecesRead(i), marked), contextSection(i) || "",
    turnFacts(i),
    shown.length ? heading("Messages shown to it here") : "",
    shown.length ? el("ul", { class: "lines" }, shown.map((d) => messageLine(SHOWN.message[d], `sent ${seconds(MESSAGES.time_s[SHOWN.message[d]])}${SHOWN.altered[d] >= 0 ? `, shown as “${DATA.texts[SHOWN.altered[d]]}”` : ""}`))) : "",
    sent.length ? heading("Messages it sent") : "",
    sent.length ? el("ul", { class: "lines" }, sent.map((m) => messageLine(m, `sent ${seconds(MESSAGES.time_s[m])}, shown to ${counted(showings(m).length, "agent")}`))) : "",
  );
  bodies.turn.scrollTop = 0;
}

function shareBar(counts, total) {
  return el("div", { class: "share", "aria-hidden": "true" }, counts.map((n, k) => (n ? el("i", { tone: DATA.colours[k], css: { "flex-grow": String(n) } }) : null)));
}
function showRollout() {
  const total = KIND_TOKENS.reduce((a, b) => a + b, 0), wasted = DATA.wastes.map(() => 0);
  TURNS.waste.forEach((waste) => { wasted[waste]++; });
  const earning = TURNS.earned.filter((value) => value > 0).length, first = wasted.slice(1).map((_, k) => TURNS.waste.indexOf(k + 1));
  const judged = MESSAGES.truth.filter((t) => t >= 0), fresh = SHOWN.fresh.filter((f) => f === 1).length;
  const known = SHOWN.used.filter((u) => u >= 0), used = known.filter((u) => u === 1).length;
  const top = range(N_LANES).filter((l) => EARNED_BY[l] > 0).sort((a, b) => EARNED_BY[b] - EARNED_BY[a]).slice(0, 8);
  const key = FACTS;
  bodies.rollout.replaceChildren(
    el("div", { class: "top" }, el("h2", {}, "This rollout")),
    el("p", { class: "lead" }, `${counted(N_LANES, "agent")} took ${counted(N_TURNS, "turn")} in ${seconds(FACTS.end_s)} and earned ${FACTS.return.toFixed(3)}. Select a turn to read it.`),
    heading("Where the sampled tokens went"), shareBar(KIND_TOKENS, total),
    el("ul", { class: "kinds" }, DATA.kinds.map((kind, k) => el("li", { tone: DATA.colours[k] }, el("i"), kind, el("b", {}, total ? percent(KIND_TOKENS[k] / total) : "0%"), el("small", {}, counted(KIND_TURNS[k], "turn"))))),
    heading("What came of it"),
    el("dl", { class: "grid" },
      fact("turns that earned", String(earning)),
      fact("wasted turns", first.some((i) => i >= 0) ? first.filter((i) => i >= 0).map((i) => `${wasted[TURNS.waste[i]]} ${wasteOf(i)}`).join(", ") : "none"),
      fact("messages", N_MESSAGES ? `${N_MESSAGES} sent, shown ${counted(SHOWN.message.length, "time")}` : "none"),
      judged.length ? fact("of those judged", `${judged.filter((t) => t === 1).length} true, ${judged.filter((t) => t === 0).length} untrue`) : [],
      SHOWN.message.length ? fact("showings", `${percent(fresh / SHOWN.message.length)} new to the receiver${known.length ? `, ${percent(used / known.length)} used later` : ""}`) : [],
      FACTS.advantage === null ? [] : fact("advantage", `${signed(FACTS.advantage, 4)}, its group's mean is ${FACTS.group_mean.toFixed(4)} over ${FACTS.group_size} rollouts`),
      fact("sampled", `${counted(FACTS.tokens, "token")}; ${counted(FACTS.prompt_tokens, "prompt token")} charged`),
      fact("policy version", FACTS.versions.join(", ") || "none"), fact("stopped", FACTS.stop_reason), FACTS.error ? fact("error", FACTS.error) : [],
      fact("key", `${key.run}, iteration ${key.iteration}, group ${key.group}, rollout ${key.rollout}`), fact("seed", FACTS.seed)),
    top.length ? heading("Who earned it", N_LANES > 8 ? "the first eight" : "") : "",
    el("ul", { class: "earners" }, top.map((l) => el("li", {}, el("button", { class: "line", onclick: () => selectTurn(turnNear(l, 0)) }, el("b", {}, agentName(l)),
      el("span", { class: "meter", css: { "--w": `${(100 * EARNED_BY[l]) / EARNED_BY[top[0]]}%` } }), el("small", {}, EARNED_BY[l].toFixed(3)))))),
  );
}

function openPanel(name, isFocused) {
  tab = name;
  panel.hidden = false;
  document.body.classList.add("open");
  for (const [key, body] of Object.entries(bodies)) {
    body.hidden = key !== name;
    const button = $(`for-${key}`);
    button.setAttribute("aria-selected", String(key === name));
    button.tabIndex = key === name ? 0 : -1;
  }
  if (name === "messages") showMessages();
  $("toggle-panel").setAttribute("aria-expanded", "true");
  resize();
  if (isFocused) bodies[name].focus();
}
function closePanel() {
  panel.hidden = true;
  document.body.classList.remove("open");
  $("toggle-panel").setAttribute("aria-expanded", "false");
  resize();
  plot.focus({ preventScroll: true });
}

const say = (text) => { $("live").textContent = text; };
function selectTurn(i, isQuiet) {
  if (i < 0 || i >= N_TURNS) return;
  view.turn = i;
  view.message = -1;
  showTurn(i);
  openPanel("turn");
  moveView(revealing(TURNS.start_s[i], TURNS.end_s[i], [TURNS.agent[i]]));
  if (!isQuiet) say(`${agentName(TURNS.agent[i])}, turn ${TURNS.index[i] + 1}, ${kindOf(i)}, ${seconds(TURNS.start_s[i])} to ${seconds(TURNS.end_s[i])}: ${barLabel(i)}`);
  try { history.replaceState(null, "", `#turn=${TURNS.agent[i]}.${i - LANE_AT[TURNS.agent[i]]}`); } catch { /* a page inside a frame may not */ }
}
function selectMessage(m) {
  view.message = m;
  view.turn = -1;
  openPanel("messages");
  const ds = showings(m), times = [MESSAGES.time_s[m], ...ds.map((d) => SHOWN.time_s[d])];
  moveView(revealing(Math.min(...times), Math.max(...times), [MESSAGES.sender[m], ...(ds.length === 1 ? [SHOWN.agent[ds[0]]] : [])]));
  markMessage();
  say(`message ${m + 1} of ${N_MESSAGES}, ${agentName(MESSAGES.sender[m])} to ${receiverName(m)}: ${DATA.texts[MESSAGES.text[m]]}`);
}
function selectNothing() { view.turn = view.message = -1; markMessage(); requestDraw(); }
