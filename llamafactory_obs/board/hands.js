// Pointer and keys in a chart: the cursor, a drag that zooms, steps by arrow.

import { LEFT, RIGHT } from "./chart.js";
import { make } from "./format.js";
import { nearest, upTo } from "./steps.js";

export function listen(chart) {
  let begin = null, box = null;
  const at = (event) => {
    const frame = chart.area.getBoundingClientRect(), [low, high] = chart.all.range();
    const share = (event.clientX - frame.left - LEFT) / (frame.width - LEFT - RIGHT);
    return low - 0.5 + Math.min(1, Math.max(0, share)) * (high - low + 1);
  };
  const point = (event) => {
    const steps = chart.steps(), step = Math.round(at(event));
    chart.all.move(steps.length ? steps[nearest(steps, step)] : step);
  };
  chart.area.addEventListener("pointerdown", (event) => {
    if (!chart.frame) return;
    point(event);
    if (event.pointerType === "mouse" && event.button === 0) { begin = event.clientX; chart.area.setPointerCapture(event.pointerId); }
  });
  chart.area.addEventListener("pointermove", (event) => {
    if (!chart.frame) return;
    point(event);
    if (begin === null) return;
    if (!box) { box = make("div", "selection"); chart.area.append(box); }
    const left = chart.area.getBoundingClientRect().left;
    box.style.left = `${Math.min(begin, event.clientX) - left}px`;
    box.style.width = `${Math.abs(event.clientX - begin)}px`;
  });
  const end = (event) => {
    box?.remove();
    box = null;
    const from = begin;
    begin = null;
    if (from !== null && Math.abs(event.clientX - from) > 8) {
      const other = at({ clientX: from }), here = at(event);
      chart.all.zoom([Math.min(other, here), Math.max(other, here)]);
    }
  };
  chart.area.addEventListener("pointerup", end);
  chart.area.addEventListener("pointercancel", () => { box?.remove(); box = begin = null; });
  chart.area.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse" && begin === null) chart.all.move(null); });
  chart.area.addEventListener("dblclick", () => chart.all.zoom(null));
  chart.figure.addEventListener("keydown", (event) => { if (event.target === chart.figure && key(chart, event)) event.preventDefault(); });
}

function key(chart, event) {
  const { all } = chart, steps = chart.steps(), way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (way && steps.length) {
    const [low, high] = all.range(), first = Math.max(0, upTo(steps, low - 1) + 1), last = upTo(steps, high);
    const now = all.here === null ? (way > 0 ? first - 1 : last + 1) : nearest(steps, all.here);
    const index = Math.min(last, Math.max(first, now + way * (event.shiftKey ? 10 : 1)));
    all.move(steps[index], true);
  } else if (event.key === "Escape") { all.move(null); all.zoom(null); }
  else if ((event.key === "+" || event.key === "-") && all.here !== null) {
    const [low, high] = all.range(), half = ((high - low) / 2) * (event.key === "+" ? 0.5 : 2);
    all.zoom([all.here - Math.max(1, half), all.here + Math.max(1, half)]);
  } else return false;
  return true;
}
