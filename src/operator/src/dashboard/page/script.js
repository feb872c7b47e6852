// The page: it follows the stream of changes and shows each ensemble as a card. All texts become text nodes, never markup.

const element = (id) => document.getElementById(id);
const [connection, news, forget, login, refusal, failure, bound, cards] =
  ["connection", "news", "forget", "login", "refusal", "failure", "bound", "cards"].map(element);

/** Longest silence of the stream: the server writes a comment every 15 s. */
const SILENCE = 40_000;

/** An element with attributes and children; a text child becomes a text node. */
function el(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) node.setAttribute(key, value);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

// ---- one card ----

const STEPS = {
  done: ["✓", "done"],
  now: ["▶", "now: it is being changed"],
  next: ["→", "next"],
  waits: ["…", "waits"],
};
const SERVERS = {
  leader: ["★", "leader"],
  follower: ["●", "follower"],
  observer: ["○", "observer"],
  looking: ["?", "looks for a leader"],
  off: ["✕", "off: it serves nothing"],
  unknown: ["?", "unknown: its agent does not report it"],
};

const hidden = (text) => el("span", { "aria-hidden": "true" }, text);

/** A part of a card with a heading; nothing if it has no content. */
const part = (title, ...content) => el("section", null, el("h3", null, title), ...content);

function finding({ subject, condition, reason, message, action, advice }) {
  const where = subject === "ensemble" ? "The ensemble" : `Cluster ${subject}`;
  return el("li", { class: advice ? "advice" : "needs" },
    el("p", null, el("b", null, `${where}${advice ? ", advice" : ""}: `), message),
    action ? el("p", null, el("b", null, "What to do: "), action) : null,
    condition || reason ? el("p", { class: "reason" }, [condition, reason].filter(Boolean).join(", ")) : null);
}

function waiting(ensemble) {
  const title = ensemble.waits ? "What it waits for" : "What it waits for: nothing";
  if (!ensemble.findings.length) return part(title, el("p", null, "Every cluster is complete and serves."));
  return part(title, el("ul", { class: "findings", role: "list" }, ensemble.findings.map(finding)));
}

function rollout({ rollout: text, steps }) {
  if (!steps.length) return part("Rollout", el("p", null, "No rollout has started."));
  const step = ({ cluster, state }) => el("li", { class: state },
    el("span", { class: "mark", "aria-hidden": "true" }, STEPS[state][0]), el("b", null, cluster),
    el("span", null, STEPS[state][1]));
  return part("Rollout", el("p", null, text ?? ""), el("ol", { class: "steps", role: "list" }, steps.map(step)));
}

function quorum({ quorum: count }) {
  if (!count) return part("Quorum", el("p", null, "There is no server list yet."));
  const dots = Array.from({ length: count.voters }, (_, at) => el("i", { class: at < count.serving ? "up" : "down" }));
  dots.splice(count.majority, 0, el("b", null));
  return part("Quorum", el("div", { class: "voters", "aria-hidden": "true" }, dots), el("p", null, count.text));
}

function server({ id, role, state, report }) {
  const [mark, word] = SERVERS[state];
  const remarks = [role === "leaving" ? "leaves" : role, report?.version, report?.lost ? "its volume is lost" : "",
    report?.serving && !report.synced ? "not in sync" : ""];
  return el("tr", null, el("th", { scope: "row" }, String(id)), el("td", { class: state }, hidden(`${mark} `), word),
    el("td", null, remarks.filter(Boolean).join(", ")));
}

function cluster({ name, reachable, position, movedTo, serving, desired, message, servers }) {
  const verb = servers.some(({ role }) => role === "voter") ? "move to" : "are in";
  const moved = movedTo && `its voters ${verb} ${movedTo}`;
  const state = [reachable === false ? "unreachable: reports may be old" : position, moved, `${serving} of ${desired} voters serve`];
  const head = ["Server", "Role", "Details"].map((title) => el("th", { scope: "col" }, title));
  const caption = el("caption", null, el("b", null, name), el("span", null, state.filter(Boolean).join(", ")),
    message ? el("span", null, message) : null);
  const none = el("tr", null, el("td", { colspan: "3" }, "No servers"));
  return el("table", null, caption, el("thead", null, el("tr", null, head)),
    el("tbody", null, servers.length ? servers.map(server) : none));
}

function conditions({ states }) {
  const words = (good) => good === true ? ["good", "✓ ", "fine"] : good === false ? ["bad", "! ", "not fine"] : ["", "– ", "no verdict"];
  const row = ({ type, status, good, reason, message }) => {
    const [tone, mark, word] = words(good);
    return el("tr", null, el("th", { scope: "row" }, type),
      el("td", { class: tone }, hidden(mark), `${status} (${word})`), el("td", null, reason), el("td", null, message));
  };
  const head = ["Condition", "Status", "Reason", "Message"].map((title) => el("th", { scope: "col" }, title));
  return el("details", null, el("summary", null, "All conditions"),
    el("table", { class: "states" }, el("caption", { class: "unseen" }, "All conditions"),
      el("thead", null, el("tr", null, head)), el("tbody", null, states.map(row))));
}

const keyOf = ({ namespace, name }) => `${namespace}/${name}`;

// ---- the operator's steps of an open card ----

/** Time between two reads of the steps of an open card. The server computes them no more often. */
const STEPS_INTERVAL = 10_000;
const STEP_WORDS = { done: ["good", "✓ ", "done"], waits: ["", "… ", "waits"], needs: ["bad", "! ", "needs you"] };

/** What is known of each card whose steps are open, by key: `steps`, or `error`. */
const opened = new Map();

function operatorSteps(ensemble) {
  const key = keyOf(ensemble);
  const { steps, error } = opened.get(key) ?? {};
  const row = ({ step, state, reason, message }) => {
    const [tone, mark, word] = STEP_WORDS[state];
    return el("tr", null, el("th", { scope: "row" }, step), el("td", { class: tone }, hidden(mark), word),
      el("td", null, reason ?? ""), el("td", null, message ?? ""));
  };
  const head = ["Step", "State", "Reason", "Message"].map((title) => el("th", { scope: "col" }, title));
  const content = steps
    ? el("table", { class: "states" }, el("caption", { class: "unseen" }, "The operator's steps"),
      el("thead", null, el("tr", null, head)), el("tbody", null, steps.map(row)))
    : el("p", null, error ? `The steps cannot be computed: ${error}` : "The steps are being computed.");
  return el("details", { "data-steps": key }, el("summary", null, "The operator's steps"), content);
}

/** Reads the steps of a card, and again while it is open. */
async function followSteps(key, entry) {
  const { token } = session;
  const [namespace, name] = key.split("/").map(encodeURIComponent);
  while (opened.get(key) === entry) {
    try {
      const headers = { Authorization: `Bearer ${token}` };
      const response = await fetch(`/api/v1/namespaces/${namespace}/ensembles/${name}/steps`, { headers });
      Object.assign(entry, response.ok ? { steps: await response.json(), error: null } : { steps: null, error: await response.text() });
    } catch {
      Object.assign(entry, { steps: null, error: "no connection" });
    }
    if (opened.get(key) === entry) show(shown);
    await new Promise((resolve) => setTimeout(resolve, STEPS_INTERVAL));
  }
}

function card(ensemble) {
  const key = keyOf(ensemble);
  const badge = ensemble.ready ? ["good", "✓ ", "Ready"] : ["bad", "! ", "Not ready"];
  return el("article", { class: "card", "data-key": key, "aria-labelledby": `title-${key}` },
    el("div", { class: "head" }, el("h2", { id: `title-${key}` }, key), el("p", { class: `badge ${badge[0]}` }, hidden(badge[1]), badge[2])),
    el("p", null, ensemble.summary),
    waiting(ensemble), rollout(ensemble), quorum(ensemble),
    part("Servers", ensemble.clusters?.length
      ? el("div", { class: "clusters" }, ensemble.clusters.map(cluster))
      : el("p", null, "No cluster has servers yet.")),
    conditions(ensemble), operatorSteps(ensemble));
}

// ---- changes ----

const alike = (a, b) => a.nodeName === b.nodeName && a.dataset?.key === b.dataset?.key;

/** Makes `old` like `fresh` and keeps its nodes, so that focus, open details and the place of a screen reader stay. */
function patch(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  patchChildren(old, fresh);
}

function patchChildren(old, fresh) {
  const keyed = new Map([...old.children].filter((child) => child.dataset.key).map((child) => [child.dataset.key, child]));
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const same = next.dataset?.key ? keyed.get(next.dataset.key) : at;
    if (!same || !alike(same, next)) {
      old.insertBefore(next, at);
    } else {
      if (same === at) at = at.nextSibling;
      else old.insertBefore(same, at);
      patch(same, next);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

let summaries = null;

/** Says which summaries changed. The first state is no change. */
function announce(ensembles) {
  const now = new Map(ensembles.map((ensemble) => [keyOf(ensemble), ensemble.summary]));
  if (summaries) {
    const changed = [...now].filter(([key, summary]) => summaries.get(key) !== summary).map(([key, summary]) => `${key}: ${summary}`);
    const gone = [...summaries.keys()].filter((key) => !now.has(key)).map((key) => `${key} is gone.`);
    if (changed.length || gone.length) news.textContent = [...changed, ...gone].join(" ");
  }
  summaries = now;
}

/** The ensembles of the last event. */
let shown = [];

function show(ensembles) {
  shown = ensembles;
  const none = el("p", null, "No MultiClusterZooKeeper exists here.");
  patchChildren(cards, el("div", null, ensembles.length ? ensembles.map(card) : none));
  announce(ensembles);
  const open = ensembles.filter((ensemble) => !ensemble.ready).length;
  document.title = open ? `${open} of ${ensembles.length} not ready – mczk` : "mczk";
}

function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// ---- the stream ----

let session = null;

/** What the next event of ensembles leaves out. */
let leftOut = "";

/** One event of the stream. */
function handle(kind, data) {
  if (kind === "bound") {
    leftOut = data.message;
  } else if (kind === "ensembles") {
    show(data);
    say(bound, leftOut);
    leftOut = "";
    say(failure, "");
    say(connection, "Live");
  } else if (kind === "failure") {
    say(failure, `The ensembles cannot be read: ${data.message}. What the page shows may be old.`);
    say(connection, "Not live");
  } else if (kind === "refused") {
    ask(data.message);
  }
}

function parse(block) {
  const fields = block.split("\n").filter((line) => line && !line.startsWith(":")).map((line) => line.split(/: ?(.*)/s));
  const kind = fields.find(([name]) => name === "event")?.[1];
  const data = fields.filter(([name]) => name === "data").map(([, value]) => value).join("\n");
  if (kind && data) handle(kind, JSON.parse(data));
}

/** Follows one connection until it ends. */
async function follow({ token, namespace, abort }) {
  const path = namespace ? `/api/v1/namespaces/${encodeURIComponent(namespace)}/events` : "/api/v1/events";
  const silent = new AbortController();
  let watchdog = setTimeout(() => silent.abort(), SILENCE);
  try {
    const signal = AbortSignal.any([abort.signal, silent.signal]);
    const response = await fetch(path, { headers: { Authorization: `Bearer ${token}` }, signal });
    if ([400, 401, 403].includes(response.status)) return ask(await response.text());
    if (!response.ok) throw new Error(await response.text());
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => silent.abort(), SILENCE);
      const blocks = (rest + chunk.value).split("\n\n");
      rest = blocks.pop();
      blocks.forEach(parse);
    }
  } finally {
    clearTimeout(watchdog);
  }
}

/** Follows the stream, and connects again after a pause, until the session ends. */
async function start(token, namespace) {
  session?.abort.abort();
  const mine = { token, namespace, abort: new AbortController() };
  session = mine;
  login.hidden = true;
  say(refusal, "");
  say(connection, "Connecting");
  for (let pause = 1000; session === mine; pause = Math.min(pause * 2, 15_000)) {
    const began = Date.now();
    await follow(mine).catch(() => {});
    if (session !== mine) return;
    if (Date.now() - began > SILENCE) pause = 1000;
    say(connection, "No connection. The page tries again");
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

/** Ends the session, and asks for a token. */
function ask(message) {
  session?.abort.abort();
  session = null;
  summaries = null;
  shown = [];
  opened.clear();
  cards.replaceChildren();
  forget.hidden = true;
  login.hidden = false;
  say(failure, "");
  say(bound, "");
  say(refusal, message);
  say(connection, "Not logged in");
  element("token").focus();
}

login.addEventListener("submit", (event) => {
  event.preventDefault();
  const [token, namespace] = [element("token"), element("namespace")];
  start(token.value.trim(), namespace.value.trim());
  token.value = "";
  forget.hidden = false;
});
forget.addEventListener("click", () => ask(""));
// The event does not bubble.
cards.addEventListener("toggle", ({ target }) => {
  const key = target.dataset.steps;
  if (!key) return;
  if (!target.open) opened.delete(key);
  else if (session && !opened.has(key)) {
    const entry = {};
    opened.set(key, entry);
    followSteps(key, entry);
  }
}, true);
// The fragment of the URL holds the token, so a link must not change it.
element("skip").addEventListener("click", (event) => {
  event.preventDefault();
  element("main").focus();
});

function begin() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) start(token, "");
  else ask("");
}
window.addEventListener("hashchange", begin);
begin();
