// The page: takes what the server tells, and draws only the parts that have changed.

import { alerts, card, chooser, state } from "./cards.js";
import { Charts } from "./charts.js";
import { checkpoints, findings, probes } from "./lists.js";
import { clock, keep, kept, lang, make, say, span } from "./format.js";
import { Store } from "./store.js";

const MOST = 8, at = (id) => document.getElementById(id);
const logs = kept("log") || { norm: true };
const store = new Store(changed, link);
store.chosen = kept("runs")?.length ? kept("runs") : null;

const charts = new Charts(document.querySelector("#charts .grid4"), [
  { line: "loss", title: say("train_loss"), unit: say("nats") },
  { line: "eval", title: say("eval_loss"), unit: say("nats"), dots: true },
  { line: "norm", title: say("grad_norm"), unit: "" },
  { line: "speed", title: say("speed"), unit: "", zero: true },
].map((spec) => ({ ...spec, log: logs[spec.line] === true, onLog: (log) => { logs[spec.line] = log; keep("log", logs); } })), moved);

const dirty = new Set();
let painting = false, waited = ""; // runs that diagnose has not read yet, and whether there is something to read

function changed(parts) {
  if (parts.has("runs")) dirty.add("head");
  for (const part of parts) dirty.add(part);
  if (painting) return;
  painting = true;
  // a hidden tab gets no frames: paint all the same, it is a poll in 15 s
  (document.hidden ? setTimeout : requestAnimationFrame)(paint);
}

// what cannot be drawn is told to the browser, and the rest is drawn
function draw(part) {
  try { part(); } catch (error) { reportError(error); }
}

function paint() {
  painting = false;
  const news = new Set(dirty), runs = store.shown(), has = (...names) => names.some((name) => news.has(name)), now = store.serverNow();
  dirty.clear();
  if (has("listing", "head")) draw(() => {
    at("runs").hidden = store.listing.length < 2;
    at("empty").hidden = store.listing.length > 0;
    at("empty").textContent = say("empty");
    choices(runs);
  });
  if (has("listing", "head", "findings")) draw(() => {
    at("cards").hidden = !runs.length;
    at("cards").replaceChildren(...runs.map((run) => card(run, now)));
  });
  if (has("alerts", "runs")) draw(() => tell(alerts(at("alerts").querySelector("div"), runs)));
  if (has("curves", "marks", "checkpoints", "runs")) draw(() => {
    at("charts").hidden = !runs.some((run) => Object.values(run.lines).some((line) => line.steps.length));
    charts.set(runs.map((run) => ({ ...run, marks: [...(run.marks || []), ...saves(run)] })));
    moved(charts.here);
  });
  const waits = runs.filter((run) => !run.findings).map((run) => `${run.id} ${Boolean(run.head?.step)}`).join(" ");
  if (has("findings", "runs") || waits !== waited) draw(() => { at("findings").hidden = !findings(at("findings").querySelector("div"), runs); });
  if (has("probes", "runs")) draw(() => { at("probes").hidden = !probes(at("probes").querySelector("div"), runs); });
  if (has("checkpoints", "runs")) draw(() => { at("checkpoints").hidden = !checkpoints(at("checkpoints").querySelector("div"), runs, now); });
  waited = waits;
  document.body.dataset.painted = String(store.tick);
}

// made anew only where it looks different: a click may be under way
let looks = "";
function choices(runs) {
  const listing = fresh(store.listing, runs);
  const key = JSON.stringify([listing.map((one) => [one.id, one.name, state(one)]), runs.map((run) => [run.id, run.colour])]);
  if (key === looks) return;
  looks = key;
  const inside = document.activeElement?.closest?.("#runs input")?.value;
  chooser(at("runs").querySelector("div"), listing, runs, MOST, choose);
  if (inside) document.querySelector(`#runs input[value="${inside}"]`)?.focus();
}

// the listing with what is known better of the chosen ones
function fresh(listing, runs) {
  const heads = new Map(runs.map((run) => [run.id, run.head || {}]));
  return listing.map((one) => ({ ...one, ...(({ status, ending }) => (status ? { status, ending } : {}))(heads.get(one.id) || {}) }));
}

const saves = (run) => (run.checkpoints || []).map((one) => ({ step: one.step, kind: "checkpoint", title: one.name }));

function choose(ids) {
  keep("runs", ids);
  store.choose(ids);
}

// how many alerts are open stands in the tab's title; a new one is said aloud
let told = null;
function tell(open) {
  at("alerts").hidden = !open.length;
  document.title = open.length ? `(${open.length}) ${say("title")}` : say("title");
  const names = new Set(open.map(({ run, alert }) => `${run.id} ${alert.id} ${alert.level}`));
  if (told) {
    const fresh = open.filter(({ run, alert }) => !told.has(`${run.id} ${alert.id} ${alert.level}`));
    if (fresh.length) at("spoken").textContent = fresh.map(({ run, alert }) => say("new_alert", { run: run.name, title: alert.title[lang] })).join(" ");
  }
  told = names;
}

// the step under the cursor, and what happened there
function moved(step, aloud = false) {
  const out = at("here");
  at("reset").hidden = charts.view === null;
  if (at("range").value !== "" && Array.isArray(charts.view)) at("range").value = "";
  if (step === null) { out.textContent = ""; return; }
  const [low, high] = charts.range(), near = Math.max(0.5, (high - low) / 150), words = [say("step", { step })];
  for (const run of charts.runs) for (const mark of run.marks) if (Math.abs(mark.step - step) <= near) {
    words.push(say("mark", { what: mark.kind === "alert" ? mark.title[lang] : say(`mark_${mark.kind}`), step: mark.step, run: run.name }));
  }
  out.textContent = words.slice(0, 5).join(" · ");
  if (aloud) at("spoken").textContent = `${out.textContent}. ${charts.charts.map((chart) =>
    [...chart.legend.children].map((item) => `${chart.spec.title} ${item.textContent}`).join(", ")).filter(Boolean).join("; ")}`;
}

let since = null;
function link(how) {
  const node = at("link"), lost = at("lost");
  node.className = how;
  if (how === "live") { since = null; lost.hidden = true; tick(); return; }
  since ??= store.seen || Date.now();
  node.textContent = say("link_lost");
  const words = how === "token" ? say("token_gone") : say("server_gone", { time: clock(since / 1000) });
  if (lost.textContent !== words || lost.hidden) { lost.textContent = words; lost.hidden = false; }
}

function tick() {
  const node = at("link");
  if (since === null && store.seen && node.textContent !== say("link_live")) node.textContent = say("link_live");
}
// the clocks on the cards go on between two rows
setInterval(() => {
  if (document.hidden || since !== null || !store.listing.length) return;
  const runs = store.shown(), now = store.serverNow();
  if (!at("cards").contains(document.activeElement) && !String(getSelection())) at("cards").replaceChildren(...runs.map((run) => card(run, now)));
}, 5000);

const range = at("range");
range.append(...[["all", say("all_steps")], ["1000", say("last_steps", { count: 1000 })], ["200", say("last_steps", { count: 200 })], ["", "…"]]
  .map(([value, text]) => Object.assign(make("option", "", text), { value, hidden: value === "" })));
range.addEventListener("change", () => charts.zoom(range.value === "all" ? null : Number(range.value)));
at("reset").addEventListener("click", () => { range.value = "all"; charts.zoom(null); });
at("smooth").addEventListener("change", (event) => { charts.smooth = event.target.checked; charts.draw(); });

const other = at("other-language"), query = new URLSearchParams(location.search);
query.set("lang", lang === "zh" ? "en" : "zh");
other.href = `?${query}`;
other.textContent = lang === "zh" ? "English" : "中文";
other.lang = lang === "zh" ? "en" : "zh-CN";

store.poll();
