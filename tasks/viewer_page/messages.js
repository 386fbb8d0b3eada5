// The list of messages: who told whom what and when, what became of it, and what it was worth where that was measured.
const messageList = $("message-list"), ORDERS = { time: (a, b) => a - b, value: (a, b) => worth(b) - worth(a), shown: (a, b) => showings(b).length - showings(a).length || a - b };
const worth = (m) => (valueOf(m) ? valueOf(m)[0] : -Infinity);
const valueRange = Math.max(1e-9, ...Object.values(DATA.values).flatMap(([, low, high]) => [Math.abs(low), Math.abs(high)]));
let isListed = false;

function valueBar(m) {
  const value = valueOf(m);
  if (!value) return HAS_VALUES ? el("small", { class: "value none" }, "value not measured") : null;
  const [mean, low, high] = value, at = (v) => `${50 + (50 * v) / valueRange}%`, isClear = low > 0 || high < 0;
  return el("span", { class: isClear ? "value clear" : "value" },
    el("span", { class: "interval", "aria-hidden": "true", css: { "--low": at(low), "--high": at(high), "--mean": at(mean) } }, el("i"), el("b")),
    el("small", {}, `worth ${signed(mean)}, interval ${signed(low)} to ${signed(high)}`));
}

function messageRow(m) {
  const ds = showings(m), fresh = ds.filter((d) => SHOWN.fresh[d] === 1).length, used = ds.filter((d) => SHOWN.used[d] === 1).length;
  const isKnown = ds.some((d) => SHOWN.used[d] >= 0), altered = ds.filter((d) => SHOWN.altered[d] >= 0);
  const flags = el("span", { class: "flags" }, truthBadge(m), MESSAGES.repost[m] ? el("span", { class: "flag dull" }, "sent again") : null,
    ds.length ? el("span", { class: fresh ? "flag" : "flag dull" }, ds.length === 1 ? (fresh ? "new" : "known already") : `new to ${fresh} of ${ds.length}`) : el("span", { class: "flag dull" }, "not shown to anybody"),
    isKnown ? el("span", { class: used ? "flag good" : "flag dull" }, used ? (ds.length === 1 ? "used" : `used by ${used}`) : "not used") : null,
    altered.length ? el("span", { class: "flag bad" }, "shown altered") : null);
  return el("li", { "data-message": m }, el("button", { class: "message", "aria-expanded": "false", onclick: () => (view.message === m ? selectNothing() : selectMessage(m)) },
    el("span", { class: "when" }, seconds(MESSAGES.time_s[m])), el("span", { class: "who" }, el("b", {}, agentName(MESSAGES.sender[m])), " → ", receiverName(m)),
    el("span", { class: "said" }, DATA.texts[MESSAGES.text[m]]), flags, valueBar(m)), el("div", { class: "more", hidden: true }));
}

function showMessages() {
  if (isListed) return;
  isListed = true;
  const query = $("message-filter").value.trim().toLowerCase(), which = $("message-which").value, order = $("message-order").value;
  const found = range(N_MESSAGES).filter((m) =>
    (which === "all" || (which === "true" && MESSAGES.truth[m] === 1) || (which === "untrue" && MESSAGES.truth[m] === 0) ||
      (which === "used" && showings(m).some((d) => SHOWN.used[d] === 1)) || (which === "unseen" && !showings(m).length)) &&
    (!query || `${agentName(MESSAGES.sender[m])} ${receiverName(m)} ${DATA.texts[MESSAGES.text[m]]}`.toLowerCase().includes(query)));
  found.sort(ORDERS[order]);
  messageList.replaceChildren(...found.map(messageRow));
  $("message-count").textContent = found.length === N_MESSAGES ? counted(N_MESSAGES, "message") : `${found.length} of ${counted(N_MESSAGES, "message")}`;
  markMessage();
}

function markMessage() { // open the selected message's row, close the others
  messageList.querySelectorAll("[aria-expanded=true]").forEach((button) => {
    button.setAttribute("aria-expanded", "false");
    button.nextElementSibling.hidden = true;
  });
  const m = view.message, row = m >= 0 && messageList.querySelector(`[data-message="${m}"]`);
  if (!row) return;
  const [button, more] = row.children, sender = turnEnding(MESSAGES.sender[m], MESSAGES.time_s[m]);
  button.setAttribute("aria-expanded", "true");
  more.hidden = false;
  more.replaceChildren(
    sender >= 0 ? el("button", { class: "plain", onclick: () => selectTurn(sender) }, "read the turn that sent it") : "",
    el("ol", { class: "shown" }, showings(m).map((d) => {
      const i = turnStarting(SHOWN.agent[d], SHOWN.time_s[d]), late = SHOWN.time_s[d] - MESSAGES.time_s[m];
      const note = `${seconds(SHOWN.time_s[d])}, ${seconds(late)} later${SHOWN.fresh[d] ? ", new" : ""}${SHOWN.used[d] === 1 ? ", used" : ""}${SHOWN.altered[d] >= 0 ? `, as “${DATA.texts[SHOWN.altered[d]]}”` : ""}`;
      return el("li", {}, i >= 0 ? el("button", { class: "plain", onclick: () => selectTurn(i) }, agentName(SHOWN.agent[d])) : agentName(SHOWN.agent[d]), ` ${note}`);
    })));
  row.scrollIntoView({ block: "nearest" });
}

{
  const again = () => { isListed = false; showMessages(); };
  $("message-filter").addEventListener("input", again);
  $("message-which").addEventListener("change", again);
  $("message-order").addEventListener("change", again);
  if (!HAS_VALUES) $("message-order").querySelector("[value=value]").remove();
}
