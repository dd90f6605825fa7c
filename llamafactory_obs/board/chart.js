// One chart: its axis, grid, marks, lines and legend, on a canvas.

import { named } from "./cards.js";
import { listen } from "./hands.js";
import { make, say } from "./format.js";
import { nearest, upTo } from "./steps.js";
import { number, ticks } from "./values.js";

const TOP = 8, BOTTOM = 20;
const LARGEST = 1e300, SMALLEST = 1e-300; // of an axis: beyond them its length is no number any more
export const LEFT = 54, RIGHT = 8; // room for the labels, pixels
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Chart {
  constructor(all, spec) {
    this.all = all;
    this.spec = spec;
    this.log = spec.log;
    this.canvas = make("canvas");
    this.canvas.setAttribute("role", "img");
    this.line = make("i", "cursor");
    this.line.hidden = true;
    this.area = make("div", "curve", this.canvas, this.line);
    this.legend = make("ul", "legend");
    this.button = make("button", "log", say("log"));
    this.button.type = "button";
    this.button.setAttribute("aria-pressed", String(this.log));
    this.button.setAttribute("aria-label", say("log_of", { chart: spec.title }));
    this.button.addEventListener("click", () => {
      this.log = !this.log;
      this.button.setAttribute("aria-pressed", String(this.log));
      spec.onLog?.(this.log);
      this.draw();
    });
    this.none = make("p", "absent none", say("no_values"));
    const title = make("h3", "", `${spec.title} `, spec.unit ? make("small", "", spec.unit) : null);
    this.figure = make("figure", "chart", make("figcaption", "", title, this.button), this.legend, this.area, this.none);
    this.figure.id = `chart-${spec.line}`;
    this.figure.tabIndex = 0;
    this.figure.setAttribute("role", "group");
    this.figure.setAttribute("aria-label", say("chart_keys", { chart: spec.title }));
    new ResizeObserver(() => this.draw()).observe(this.area);
    listen(this);
  }

  lines() {
    const out = [];
    for (const run of this.all.runs) {
      const line = run.lines[this.spec.line];
      if (!line?.steps.length) continue;
      out.push({ run, line, values: line.values, soft: this.all.smooth && line.steps.length > 10 ? line.means : null });
    }
    return out;
  }

  draw() {
    const width = this.area.clientWidth, height = this.area.clientHeight, ratio = devicePixelRatio || 1;
    if (!width) return;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    const pen = (this.pen = this.canvas.getContext("2d"));
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const [low, high] = this.all.range();
    this.x = (step) => LEFT + ((step - low + 0.5) / (high - low + 1)) * (width - LEFT - RIGHT);
    this.frame = { width, height, low, high, bottom: height - BOTTOM };
    const lines = this.lines();
    this.none.hidden = lines.length > 0;
    this.axis(lines);
    this.grid();
    this.marks();
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, 0, width - LEFT - RIGHT, this.frame.bottom + 1);
    pen.clip();
    for (const one of lines) {
      pen.strokeStyle = pen.fillStyle = style(`--c${one.run.colour}`);
      if (one.soft) { pen.globalAlpha = 0.4; this.stroke(one.line.steps, one.values, 1); pen.globalAlpha = 1; }
      this.stroke(one.line.steps, one.soft || one.values, one.soft ? 2.2 : 1.5, this.spec.dots);
      this.odd(one.line.steps, one.values);
    }
    pen.restore();
    this.describe(lines);
    this.write(lines);
    this.cursor();
  }

  axis(lines) {
    let from = Infinity, to = -Infinity;
    const { low, high } = this.frame;
    const scan = (steps, values) => {
      for (let i = Math.max(0, upTo(steps, low - 1) + 1); i < steps.length && steps[i] <= high; i++) {
        if (values[i] === null || !Number.isFinite(values[i]) || (this.log && values[i] <= 0)) continue;
        const value = Math.min(LARGEST, Math.max(this.log ? SMALLEST : -LARGEST, values[i]));
        if (value < from) from = value;
        if (value > to) to = value;
      }
    };
    for (const one of lines) scan(one.line.steps, one.values);
    const scale = (this.scale = this.log ? Math.log10 : (value) => value);
    if (from > to) { from = this.log ? 0.1 : 0; to = 1; }
    let a = scale(from), b = scale(to);
    if (!this.log && from >= 0 && (this.spec.zero || from <= 0.1 * to)) a = 0;
    const room = (b - a) * 0.06 || Math.abs(b) * 0.05 || 0.5;
    b += room;
    if (a !== 0 || this.log) a -= room;
    this.y = (value) => TOP + (1 - (scale(value) - a) / (b - a)) * (this.frame.bottom - TOP);
    this.span = this.log ? [10 ** a, 10 ** b] : [a, b];
  }

  grid() {
    const { pen } = this, { width, low, high, bottom } = this.frame;
    pen.font = "11px system-ui, sans-serif";
    pen.lineWidth = 1;
    pen.strokeStyle = style("--rule");
    pen.fillStyle = style("--soft");
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const tick of ticks(...this.span, this.log, 5)) {
      const y = Math.round(this.y(tick)) + 0.5;
      if (y < TOP - 1 || y > bottom + 1) continue;
      pen.beginPath(); pen.moveTo(LEFT, y); pen.lineTo(width - RIGHT, y); pen.stroke();
      pen.fillText(number(tick), LEFT - 6, Math.min(y, bottom - 3));
    }
    pen.textBaseline = "top";
    const most = Math.max(2, Math.floor((width - LEFT) / 75));
    for (const tick of ticks(low, high, false, most).filter(Number.isInteger)) {
      const x = this.x(tick), text = String(tick), half = pen.measureText(text).width / 2;
      pen.textAlign = x + half > width ? "right" : "center";
      pen.fillText(text, x + half > width ? width : x, bottom + 5);
    }
  }

  marks() {
    const { pen } = this, { low, high, bottom } = this.frame, drawn = new Set();
    for (const run of this.all.runs) for (const mark of run.marks) {
      if (mark.step < low || mark.step > high) continue;
      const x = Math.round(this.x(mark.step)) + 0.5, key = `${mark.kind} ${mark.level} ${x}`;
      if (drawn.has(key) && mark.kind !== "checkpoint") continue;
      drawn.add(key);
      pen.strokeStyle = pen.fillStyle = mark.kind === "checkpoint" ? style(`--c${run.colour}`)
        : style({ resume: "--resume", error: "--bad", warn: "--warn" }[mark.kind === "alert" ? mark.level : mark.kind] || "--note");
      pen.beginPath();
      if (mark.kind === "checkpoint") { pen.moveTo(x, bottom); pen.lineTo(x - 3.5, bottom + 5); pen.lineTo(x + 3.5, bottom + 5); pen.fill(); continue; }
      pen.setLineDash(mark.kind === "resume" ? [4, 3] : []);
      pen.globalAlpha = mark.kind === "resume" ? 0.9 : 0.35;
      pen.moveTo(x, TOP); pen.lineTo(x, bottom); pen.stroke();
      pen.globalAlpha = 1;
      pen.setLineDash([]);
      if (mark.kind === "alert") { pen.beginPath(); pen.moveTo(x, TOP + 1); pen.lineTo(x - 4, TOP - 7); pen.lineTo(x + 4, TOP - 7); pen.fill(); }
    }
  }

  // more points than pixels: of each column of pixels the first, lowest, highest and last
  stroke(steps, values, thick, dots = false) {
    const { pen } = this, { low, high, width } = this.frame;
    const begin = Math.max(0, upTo(steps, low - 1)), end = Math.min(steps.length, upTo(steps, high) + 2);
    const usable = (value) => value !== null && Number.isFinite(value);
    const place = (value) => (this.log && value <= 0 ? this.frame.bottom : this.y(value));
    pen.lineWidth = thick;
    pen.lineJoin = "round";
    pen.beginPath();
    let on = false;
    if (end - begin < 2 * width) {
      for (let i = begin; i < end; i++) {
        const value = values[i];
        if (value === null) continue;
        if (!usable(value)) { on = false; continue; }
        const x = this.x(steps[i]), y = place(value);
        if (on) pen.lineTo(x, y); else pen.moveTo(x, y);
        on = true;
      }
    } else {
      let column = NaN, top, bottom, last;
      const flush = () => { if (column === column) { pen.lineTo(column, top); pen.lineTo(column, bottom); pen.lineTo(column, last); } };
      for (let i = begin; i < end; i++) {
        const value = values[i];
        if (!usable(value)) continue;
        const x = Math.round(this.x(steps[i]) * 2) / 2, y = place(value);
        if (x !== column) {
          flush();
          if (on) pen.lineTo(x, y); else pen.moveTo(x, y);
          on = true;
          [column, top, bottom] = [x, y, y];
        }
        top = Math.min(top, y);
        bottom = Math.max(bottom, y);
        last = y;
      }
      flush();
    }
    pen.stroke();
    const apart = end - begin < 2 || (this.x(steps[end - 1]) - this.x(steps[begin])) / (end - begin) > 7;
    if (apart && (dots || end - begin === 1)) for (let i = begin; i < end; i++) if (usable(values[i])) {
      pen.beginPath(); pen.arc(this.x(steps[i]), place(values[i]), 3, 0, 7); pen.fill();
    }
  }

  // what is not finite stands at the edge, never at 0: NaN below, inf above
  odd(steps, values) {
    const { pen } = this, { low, high, bottom } = this.frame;
    pen.strokeStyle = style("--bad");
    pen.lineWidth = 2;
    pen.beginPath();
    for (let i = Math.max(0, upTo(steps, low - 1)); i < steps.length && steps[i] <= high; i++) {
      const value = values[i];
      if (value === null || Number.isFinite(value)) continue;
      const x = this.x(steps[i]), y = value === Infinity ? TOP : bottom;
      pen.moveTo(x, y); pen.lineTo(x, y + (value === Infinity ? 10 : -10));
    }
    pen.stroke();
  }

  write(lines) {
    const key = lines.map((one) => `${one.run.id} ${one.run.colour} ${one.run.name}`).join("|");
    if (key !== this.written) {
      this.written = key;
      this.legend.replaceChildren(...lines.map((one) => make("li", "",
        make("i", `s c${one.run.colour}`), named(one.run), " ", make("b"), make("em"))));
    }
    this.held = lines;
  }

  cursor() {
    const here = this.all.here, { low, high } = this.frame || {};
    this.line.hidden = here === null || !this.x || here < low || here > high;
    if (!this.line.hidden) this.line.style.left = `${this.x(here)}px`;
    (this.held || []).forEach((one, i) => {
      const item = this.legend.children[i], index = here === null ? one.line.steps.length - 1 : nearest(one.line.steps, here);
      item.querySelector("b").textContent = number(one.values[index]);
      const soft = one.soft && one.soft[index] !== null ? ` ${say("mean", { value: number(one.soft[index]) })}` : "";
      item.querySelector("em").textContent = soft + (here === null ? "" : ` ${say("at_step", { step: one.line.steps[index] })}`);
    });
  }

  describe(lines) {
    this.canvas.setAttribute("aria-label", lines.map((one) => {
      const last = one.line.steps.length - 1;
      return say("described", { run: one.run.name, count: last + 1, first: one.line.steps[0], last: one.line.steps[last], value: number(one.values[last]) });
    }).join(" ") || say("no_values"));
  }

  // the longest line's steps: what the arrow keys move through
  steps() {
    return (this.held || []).reduce((best, one) => (one.line.steps.length > best.length ? one.line.steps : best), []);
  }
}
