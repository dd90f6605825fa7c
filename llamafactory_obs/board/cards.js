// The chooser of runs, one card for each chosen run, and the alerts that are open.

import { clock, gib, known, lang, make, money, percent, say, span, whole } from "./format.js";
import { number } from "./values.js";

const real = (value) => (typeof value === "string" ? { nan: NaN, inf: Infinity, "-inf": -Infinity }[value] : value);

// what a run does, in one word: `quiet` and the ways to end have their own
export function state(run) {
  const word = run.ending || run.status || "unknown";
  return known(`state_${word}`) ? word : "unknown";
}

const LOOKS = { training: "keep", evaluating: "keep", saving: "keep", finished: "", quiet: "warn", killed: "error", crashed: "error", interrupted: "warn", stopped: "", oom: "error", notice: "warn" };

export function badge(word) {
  return make("span", `tag state ${LOOKS[word] || ""}`, say(`state_${word}`));
}

// a run's name where it may be cut short; the whole one is shown by pointing at it
export function named(run) {
  const node = make("bdi", "name", run.name);
  node.title = run.name;
  return node;
}

export const swatch = (run) => make("i", `swatch c${run.colour}`);

// a box for each run; what is ticked is shown
export function chooser(place, listing, shown, most, onChoose) {
  const ids = new Set(shown.map((run) => run.id)), colours = new Map(shown.map((run) => [run.id, run.colour]));
  place.replaceChildren(...listing.map((run) => {
    const box = make("input");
    box.type = "checkbox";
    box.value = run.id;
    box.checked = ids.has(run.id);
    box.disabled = !box.checked && ids.size >= most;
    box.addEventListener("change", () => onChoose(listing.map((one) => one.id).filter((id) => (id === run.id ? box.checked : ids.has(id)))));
    const live = ["training", "evaluating", "saving"].includes(run.status);
    return make("label", "choice", box, make("i", `swatch ${ids.has(run.id) ? `c${colours.get(run.id)}` : "none"}`),
      named(run), live ? make("i", "pulse") : null, make("small", "", say(`state_${state(run)}`)));
  }));
}

// label and value; a value that is not known is left out
function fact(key, value, title) {
  if (value === null || value === undefined || value === "–") return null;
  const node = make("li", "", `${say(key)} `, make("b", "", value));
  if (title) node.title = title;
  return node;
}

function meter(share, words, level = "") {
  const bar = make("div", `meter ${level}`, make("i"));
  bar.firstChild.style.width = `${Math.min(100, Math.max(0, share * 100))}%`;
  bar.setAttribute("role", "progressbar");
  bar.setAttribute("aria-label", words);
  bar.setAttribute("aria-valuenow", String(Math.round(share * 100)));
  return bar;
}

export function card(run, now) {
  const head = run.head || {}, latest = head.latest || {}, facts = run.findings?.facts || {};
  const title = make("h3", "", swatch(run), make("bdi", "name", run.name));
  if (head.refused) return make("article", "card error run", title, make("p", "", say("refused", { file: head.refused })));
  if (head.failed) return make("article", "card error run", title, make("p", "", say("unreadable", { error: head.failed })));
  if (!head.status) return make("article", "card run", title, make("p", "absent", say("reading")));
  const word = state(head), live = ["training", "evaluating", "saving", "quiet"].includes(head.status);
  const silent = head.heard ? now - head.heard : null;
  title.append(badge(word));
  const about = [head.about.model?.split("/").slice(-2).join("/"), head.about.stage, head.about.finetuning_type,
    head.about.gpus?.length ? `${head.about.gpus.length} × ${head.about.gpus[0]}` : null].filter(Boolean).join(" · ");
  const place = head.max_steps ? say("step_of", { step: whole(head.step), of: whole(head.max_steps) }) : say("step", { step: whole(head.step) });
  const share = head.max_steps ? head.step / head.max_steps : 0;
  const counts = live && head.status !== "quiet";
  const elapsed = head.seconds === null ? null : head.seconds + (counts ? Math.max(0, now - head.now) : 0);
  const perSecond = head.seconds ? head.cost / head.seconds : 0;
  const rows = [
    fact("time_spent", span(elapsed)),
    live && fact("time_to_go", span(head.seconds_to_go)),
    head.cost !== null && fact("cost_spent", `${money(elapsed * perSecond)} ${head.currency}`),
    live && head.cost_to_go !== null && fact("cost_to_go", `${money(head.cost_to_go)} ${head.currency}`),
    fact("last_row", silent === null ? null : say("ago", { time: span(silent) }), head.heard ? clock(head.heard) : ""),
    fact("step_time", head.step_seconds === null ? null : `${number(real(head.step_seconds))} s`),
  ];
  const curves = [
    fact("train_loss", number(real(latest.loss))), fact("eval_loss", number(real(latest.eval))),
    fact("grad_norm", number(real(latest.norm))), fact("speed", latest.speed === null ? null : whole(real(latest.speed))),
    fact("rate", number(real(head.lr))),
  ];
  return make("article", `card run ${LOOKS[word] || ""}`, title, about ? make("p", "note", about) : null,
    make("p", "where", make("b", "", place), head.max_steps ? ` ${percent(share)}` : "", head.segment ? ` · ${say("resumed", { times: head.segment })}` : ""),
    head.max_steps ? meter(share, place) : null,
    make("ul", "facts", ...rows.filter(Boolean)), make("ul", "facts", ...curves.filter(Boolean)),
    machine(head, facts), mask(head, facts),
    head.source === "trainer_log" ? make("p", "note", say("only_log")) : null);
}

// VRAM against its limit, GPU, RAM, disk
function machine(head, facts) {
  const m = Object.fromEntries(Object.entries(head.machine).map(([name, value]) => [name, real(value)]));
  const peak = m.peak_reserved_gib ?? m.reserved_gib;
  const limit = facts.limit_gib ?? (m.margin_gib !== undefined && peak !== undefined ? peak + m.margin_gib : null);
  const list = [
    peak === undefined ? fact("process_ram", gib(m.rss_gib ?? m.process_ram_gib))
      : fact("vram", limit ? say("of", { value: gib(peak), limit: gib(limit) }) : gib(peak)),
    fact("gpu_util", percent(m.gpu_util)),
    fact("ram_left", gib(m.ram_available_gib)), fact("disk_left", gib(m.disk_free_gib)),
    fact("temperature", m.gpu_temperature_c === undefined ? null : `${Math.round(m.gpu_temperature_c)} °C`),
  ].filter(Boolean);
  if (!list.length) return make("p", "absent", say("no_machine"));
  const bar = peak !== undefined && limit ? meter(peak / limit, say("vram"), peak / limit > 0.95 ? "error" : peak / limit > 0.88 ? "warn" : "") : null;
  return make("div", "part", make("h4", "", say("machine")), bar, make("ul", "facts", ...list));
}

function mask(head, facts) {
  const share = real(head.mask.supervised_ratio);
  if (share === undefined) return make("p", "absent", say("no_mask"));
  const wanted = facts.wanted_ratio, out = wanted && (share < wanted[0] || share > wanted[1]);
  return make("div", "part", make("h4", "", say("mask")), make("ul", "facts",
    fact("supervised", percent(share)), wanted ? fact("wanted", `${percent(wanted[0])} – ${percent(wanted[1])}`) : null,
    fact("padding", percent(real(head.mask.padding_ratio))), fact("truncated", percent(real(head.mask.truncated_ratio)))),
    out ? make("p", "tag warn", say("mask_out")) : null);
}

// open alerts of all chosen runs, the gravest first
export function alerts(place, runs) {
  const rank = { error: 0, warn: 1, info: 2 };
  const all = runs.flatMap((run) => (run.alerts || []).map((alert) => ({ run, alert })));
  all.sort((a, b) => (rank[a.alert.level] ?? 2) - (rank[b.alert.level] ?? 2) || b.alert.since - a.alert.since);
  const told = all.filter(({ alert }) => alert.level !== "info");
  place.replaceChildren(...told.map(({ run, alert }) => make("article", `card alert ${alert.level}`,
    make("h3", "", make("span", `tag ${alert.level}`, say(`level_${alert.level}`, {}, alert.level)), ` ${alert.title[lang]} `, make("small", "", alert.name)),
    make("p", "note", swatch(run), make("bdi", "", run.name), ` · ${say("since_step", { step: alert.since })}`,
      alert.count > 1 ? ` · ${say("times", { count: alert.count })}` : ""),
    make("p", "text", alert.text[lang]),
    ["kill", "keep"].includes(alert.action) ? make("p", "", make("span", `tag ${alert.action}`, say(`advice_${alert.action}`))) : null)));
  return told;
}
