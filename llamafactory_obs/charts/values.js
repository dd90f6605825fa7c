// Numbers and ticks as the server writes them; for the script of a page (page.js) and for the board's modules.

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

// as charts/axis.py; above 2 ** 53 a step and the next one are the same number: no loop may wait for its end
export function ticks(low, high, log, most) {
  const limit = 100;
  if (log) {
    const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
    if (last - first >= 1) {
      const by = Math.max(1, Math.ceil((last - first + 1) / most)), out = [];
      for (let power = first; power <= last && out.length < limit; power += by) out.push(10 ** power);
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
  for (let i = 0; first + i <= last && i < limit; i++) out.push(Number(((first + i) * by).toPrecision(12)));
  return out;
}
