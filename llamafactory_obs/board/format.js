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

// as charts/text.py
export function number(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  const size = Math.abs(value);
  if (size && (size < 1e-3 || size >= 1e6)) {
    const [mantissa, exponent] = value.toExponential(3).split("e");
    return `${mantissa.replace(/\.?0+$/, "")}e${Number(exponent)}`;
  }
  if (Number.isInteger(value)) return String(value);
  const text = value.toFixed(Math.max(0, 3 - Math.floor(Math.log10(size))));
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

// above 2 ** 53 a step and the next one are the same number: no loop may wait for its end
const MOST_TICKS = 100;

// as charts/axis.py
export function ticks(low, high, log, most) {
  if (log) {
    const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
    if (last - first >= 1) {
      const by = Math.max(1, Math.ceil((last - first + 1) / most)), out = [];
      for (let power = first; power <= last && out.length < MOST_TICKS; power += by) out.push(10 ** power);
      return out;
    }
    const out = [];
    for (let power = first - 1; power <= last; power++) for (const m of [1, 2, 3, 5, 7]) out.push(m * 10 ** power);
    const inside = out.filter((tick) => tick >= low && tick <= high);
    if (inside.length >= 2) return inside;
  }
  const rough = high / most - low / most || 1, size = 10 ** Math.floor(Math.log10(rough));
  const by = [1, 2, 5, 10].map((factor) => size * factor).find((step) => step >= rough * 0.999) || size * 10;
  const out = [], first = Math.ceil(low / by - 1e-9), last = Math.floor(high / by + 1e-9);
  for (let i = 0; first + i <= last && i < MOST_TICKS; i++) out.push(Number(((first + i) * by).toPrecision(12)));
  return out;
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
