// Numbers, times, words and elements. A text from a record enters the page as textContent only.

const given = JSON.parse(document.getElementById("texts").textContent);
export const lang = given.lang;

// a text of the page's language, its {names} filled in; a word of the record that has no text stands for itself
export function say(key, values = {}, otherwise = key) {
  return (given.words[key] ?? String(otherwise)).replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
}

export function known(key) {
  return key in given.words;
}

export function make(tag, name, ...inside) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  node.append(...inside.filter((one) => one !== null && one !== undefined && one !== ""));
  return node;
}

export const whole = (value) => (value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en-US"));
export const percent = (value) => (value === null || value === undefined ? "–" : `${(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`);
export const gib = (value) => (value === null || value === undefined ? "–" : `${value.toFixed(value < 10 ? 1 : 0)} GiB`);
export const money = (value) => (value < 10 ? value.toFixed(2) : value < 1000 ? value.toFixed(1) : whole(value));

// seconds as a person says them
export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return say("seconds", { s });
  if (s < 3600) return say("minutes", { m: Math.floor(s / 60) });
  if (s < 172800) return say("hours", { h: Math.floor(s / 3600), m: Math.floor((s % 3600) / 60) });
  return say("days", { d: Math.floor(s / 86400), h: Math.floor((s % 86400) / 3600) });
}

export function clock(unix) {
  return new Date(unix * 1000).toLocaleTimeString(lang === "zh" ? "zh-CN" : "en-GB");
}

// what the person chose is kept in this browser, where it allows that
export function keep(name, value) {
  try { localStorage.setItem(`llamafactory-obs-board-${name}`, JSON.stringify(value)); } catch { /* not kept */ }
}

export function kept(name) {
  try { return JSON.parse(localStorage.getItem(`llamafactory-obs-board-${name}`)); } catch { return null; }
}
