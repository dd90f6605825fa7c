// Below the curves, one block for each chosen run: what diagnose says, the probes, the checkpoints.

import { clock, lang, make, say, span, whole } from "./format.js";
import { swatch } from "./cards.js";

const heading = (run, ...more) => make("h3", "", swatch(run), make("bdi", "name", run.name), ...more);

export function findings(place, runs) {
  place.replaceChildren(...runs.filter((run) => run.head?.status).map((run) => {
    const found = run.findings;
    if (!found) return make("article", "block", heading(run), make("p", "absent", say(run.head.step ? "examining" : "no_step")));
    if (found.error) return make("article", "block", heading(run), make("p", "absent", found.error));
    const told = found.said[lang];
    const verdict = make("div", `verdict ${found.action}`, make("span", "word", say(`action_${found.action}`, {}, found.action)),
      make("span", "name", told.verdict), make("p", "", told.headline),
      make("p", "note", say("examined", { time: clock(found.time), step: whole(found.steps) })));
    const cards = told.findings.map((one) => make("article", `card ${one.level}`,
      make("h3", "", one.title, make("small", "", ` ${say("since_step", { step: one.step })}`)), make("p", "text", one.text),
      one.causes.length ? make("ul", "plain", ...one.causes.map((cause) =>
        make("li", "", make("b", "", cause.name), ...cause.supports.map((line) => make("p", "", line)), cause.next ? make("p", "note", cause.next) : null))) : null));
    const unseen = told.unseen.length ? make("details", "", make("summary", "", say("unseen", { count: told.unseen.length })),
      make("ul", "plain", ...told.unseen.map((line) => make("li", "", line)))) : null;
    return make("article", "block", heading(run), verdict, ...cards, unseen);
  }));
  return runs.some((run) => run.head?.status);
}

export function probes(place, runs) {
  const with_ = runs.filter((run) => run.probes);
  const places = new Map([...place.querySelectorAll(".scroll")].map((node) => [node.dataset.run, [node.scrollLeft, node.scrollTop]]));
  place.replaceChildren(...with_.map(matrix));
  for (const node of place.querySelectorAll(".scroll")) [node.scrollLeft, node.scrollTop] = places.get(node.dataset.run) || [0, 0];
  return with_.length > 0;
}

// run -> the raw answer that is open, so that new results do not close it
const opened = new Map();

function matrix(run) {
  const { suite, columns, rows, passed, left_out } = run.probes;
  const held = opened.get(run.id), detail = held?.detail || make("div", "detail");
  detail.hidden = !held;
  detail.setAttribute("aria-live", "polite");
  const head = make("thead", "", make("tr", "", cell("th", say("probe"), "col"),
    ...columns.map(([, name]) => cell("th", name.replace(/^checkpoint-/, ""), "col"))));
  const body = make("tbody", "", ...rows.map(([name, cells]) => make("tr", "", cell("th", name, "row"), ...cells.map((one, i) => {
    if (!one) return make("td", "", "–");
    const button = make("button", "", one[1] ? "✓" : `✗ ${one[2]}`);
    button.type = "button";
    button.dataset.row = one[0];
    button.setAttribute("aria-expanded", String(held?.row === button.dataset.row));
    button.setAttribute("aria-label", say("cell", { probe: name, checkpoint: columns[i][1], result: one[1] ? say("passed") : one[2] || say("failed") }));
    return make("td", one[1] ? "p" : "f", button);
  }))));
  const foot = make("tfoot", "", make("tr", "", cell("th", say("passed"), "row"), ...passed.map(([good, of]) => make("td", "", `${good}/${of}`))));
  const scroll = make("div", "scroll", make("table", "", head, body, foot));
  scroll.tabIndex = 0;
  scroll.dataset.run = run.id;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", say("matrix_of", { run: run.name }));
  const block = make("section", "matrix", heading(run, suite ? make("small", "", ` ${suite}`) : null),
    left_out ? make("p", "note", say("left_out", { count: left_out })) : null, scroll, detail);
  body.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) open(run, block, button, detail);
  });
  return block;
}

function cell(tag, text, scope) {
  const node = make(tag, "", text);
  node.scope = scope;
  node.title = text;
  return node;
}

// one raw answer; a second press closes it
async function open(run, block, button, detail) {
  const was = button.getAttribute("aria-expanded") === "true";
  for (const other of block.querySelectorAll("[aria-expanded=true]")) other.setAttribute("aria-expanded", "false");
  detail.hidden = was;
  opened.delete(run.id);
  if (was) return;
  opened.set(run.id, { row: button.dataset.row, detail });
  button.setAttribute("aria-expanded", "true");
  detail.replaceChildren(make("p", "absent", say("reading")));
  let row;
  try {
    const answer = await fetch(`api/probe/${run.id}/${button.dataset.row}`, { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    row = await answer.json();
  } catch {
    detail.replaceChildren(make("p", "", say("no_answer")));
    return;
  }
  if (opened.get(run.id)?.row !== button.dataset.row) return;
  const part = (title, text) => [make("h4", "", title), make("pre", "", text)];
  detail.replaceChildren(make("h3", "", button.getAttribute("aria-label")),
    row.details.length ? make("ul", "plain", ...row.details.map((line) => make("li", "", line))) : "",
    ...part(say("asked"), row.prompt),
    ...row.turns.flatMap((turn, i) => [
      ...part(i ? say("answer", { number: i + 1 }) : say("raw_output"), turn.raw),
      ...turn.replies.flatMap((reply) => part(say("tool_reply"), reply))]));
  detail.scrollIntoView({ block: "nearest" });
}

const bytes = (size) => {
  if (!Number.isFinite(size)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"], power = Math.min(4, Math.max(0, Math.floor(Math.log10(Math.max(1, size)) / 3)));
  return `${(size / 1000 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
};

export function checkpoints(place, runs, now) {
  const with_ = runs.filter((run) => run.checkpoints?.length);
  place.replaceChildren(...with_.map((run) => {
    const rows = run.checkpoints.filter((one) => !one.deleted).reverse(), gone = run.checkpoints.length - rows.length;
    const looks = { broken: "error", "warm start only": "warn" };
    const body = rows.slice(0, 30).map((one) => make("tr", "", cell("th", one.name || whole(one.step), "row"),
      make("td", "", one.verdict ? make("span", `tag ${looks[one.verdict] || "keep"}`, say(`verdict_${one.verdict.replaceAll(" ", "_")}`, {}, one.verdict)) : make("span", "absent", say("not_checked"))),
      make("td", "", bytes(one.size)), make("td", "", Number.isFinite(one.save_s) ? `${one.save_s.toFixed(1)} s` : "–"), make("td", "", say("ago", { time: span(now - one.time) }))));
    const heads = ["checkpoint", "good_for", "size", "save_time", "saved"].map((key) => cell("th", say(key), "col"));
    const note = [gone ? say("deleted", { count: gone }) : "", rows.length > 30 ? say("older", { count: rows.length - 30 }) : ""].filter(Boolean).join(" ");
    const scroll = make("div", "scroll", make("table", "plain-table", make("thead", "", make("tr", "", ...heads)), make("tbody", "", ...body)));
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", say("checkpoints_of", { run: run.name }));
    return make("article", "block", heading(run), rows.length ? scroll : null, note ? make("p", "note", note) : null);
  }));
  return with_.length > 0;
}
