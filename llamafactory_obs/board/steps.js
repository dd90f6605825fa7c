// Where a step stands in a list of ascending steps.

// last index whose step is not above `step`, -1 where there is none
export function upTo(steps, step) {
  let low = -1, high = steps.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] <= step) low = middle; else high = middle;
  }
  return low;
}

// the index of the nearest step, -1 where there is none
export function nearest(steps, step) {
  const at = upTo(steps, step);
  if (at < 0) return steps.length ? 0 : -1;
  return at + 1 < steps.length && steps[at + 1] - step < step - steps[at] ? at + 1 : at;
}
