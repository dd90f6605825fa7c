// All charts of the page: the runs in them, one cursor and one range of steps.

import { Chart } from "./chart.js";

export class Charts {
  runs = [];
  view = null; // [first, last] step in view; null: all
  here = null; // step under the cursor
  smooth = true;

  constructor(place, specs, onMove) {
    this.onMove = onMove;
    this.charts = specs.map((spec) => new Chart(this, spec));
    place.append(...this.charts.map((chart) => chart.figure));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  set(runs) {
    this.runs = runs.map((run) => ({ ...run, marks: run.marks || [] }));
    this.bounds = [Infinity, -Infinity];
    for (const run of this.runs) for (const line of Object.values(run.lines)) if (line.steps.length) {
      this.bounds = [Math.min(this.bounds[0], line.steps[0]), Math.max(this.bounds[1], line.steps.at(-1))];
    }
    if (this.bounds[0] > this.bounds[1]) this.bounds = [0, 1];
    this.draw();
  }

  range() {
    if (typeof this.view === "number") return [Math.max(this.bounds[0], this.bounds[1] - this.view + 1), this.bounds[1]];
    return this.view || this.bounds;
  }

  zoom(view) {
    if (Array.isArray(view)) {
      const low = Math.max(this.bounds[0], Math.floor(view[0])), high = Math.min(this.bounds[1], Math.ceil(view[1]));
      view = high - low < 2 || (low <= this.bounds[0] && high >= this.bounds[1]) ? (high - low < 2 ? this.view : null) : [low, high];
    }
    this.view = view;
    this.draw();
    this.onMove(this.here);
  }

  move(step, aloud = false) {
    this.here = step;
    for (const chart of this.charts) chart.cursor();
    this.onMove(step, aloud);
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      for (const chart of this.charts) chart.draw();
    });
  }
}
