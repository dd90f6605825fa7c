// The cursor in all charts, zoom, the raw text behind a probe, filters. Texts enter the page as textContent only.
(() => {
  "use strict";
  const WIDTH = 10000, HEIGHT = 4000;
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, name, text) => {
    const node = document.createElement(tag);
    if (name) node.className = name;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const words = { nan: NaN, inf: Infinity, "-inf": -Infinity };
  const said = JSON.parse(document.querySelector("script.words").textContent);
  const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
  const real = (value) => (typeof value === "string" ? words[value] : value);

  const charts = all("figure.chart").map((figure) => {
    const spec = JSON.parse(figure.querySelector("script.data").textContent);
    const series = (spec.series || []).map((one) => {
      let step = 0;
      const steps = one.s.map((by) => (step += by));
      return { steps, values: one.v.map(real), parts: one.b.map((begin, i) => [begin, one.b[i + 1] ?? steps.length]) };
    });
    const cursor = make("i", "cursor");
    cursor.hidden = true;
    const area = figure.querySelector(".area");
    area.append(cursor);
    if (spec.heat) {
      const bytes = Uint8Array.from(atob(spec.heat.codes), (letter) => letter.charCodeAt(0));
      const view = new DataView(bytes.buffer);
      spec.heat.at = (row, column) => view.getUint16(2 * (row * spec.heat.columns + column), true);
      spec.heat.row = 0;
    }
    const held = all("[data-series]", figure).map((node) => ({
      node, what: node.nextElementSibling, series: series[Number(node.dataset.series)],
      was: [node.textContent, node.nextElementSibling.textContent],
    }));
    return { figure, spec, series, cursor, area, held, heat: spec.heat };
  });

  let view = charts.length ? [charts[0].spec.x[0] - 0.5, charts[0].spec.x[1] + 0.5] : [0, 1];
  const whole = [...view];
  let here = null;
  const place = (step) => (step - view[0]) / (view[1] - view[0]);

  // the nearest point of the newest part that reaches so far
  function nearest(series, step) {
    let best = -1;
    for (let p = series.parts.length - 1; p >= 0; p--) {
      let [low, high] = series.parts[p];
      if (best >= 0 && (step < series.steps[low] || step > series.steps[high - 1])) continue;
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (series.steps[middle] <= step) low = middle; else high = middle;
      }
      if (low + 1 < series.parts[p][1] && series.steps[low + 1] - step < step - series.steps[low]) low++;
      if (best < 0 || Math.abs(series.steps[low] - step) < Math.abs(series.steps[best] - step)) best = low;
    }
    return best;
  }

  function show(step) {
    here = step;
    for (const chart of charts) {
      const at = step === null ? -1 : place(step);
      chart.cursor.hidden = at < 0 || at > 1;
      chart.cursor.style.left = `${at * 100}%`;
      for (const one of chart.held) {
        const index = step === null ? -1 : nearest(one.series, step);
        one.node.textContent = index < 0 ? one.was[0] : number(one.series.values[index]);
        one.what.textContent = index < 0 ? one.was[1] : fill(said.at, { step: one.series.steps[index] });
      }
      if (chart.heat) showCell(chart, step);
    }
  }

  function showCell(chart, step) {
    const { heat, spec } = chart, out = chart.figure.querySelector("[data-heat]");
    const column = step === null ? -1 : Math.floor((step - spec.x[0]) / heat.width);
    if (column < 0 || column >= heat.columns) { out.textContent = ""; return; }
    const code = heat.at(heat.row, column), [low, high, first, last] = heat.scale;
    const odd = [said.missing, "0", "NaN", "inf"][code];
    const value = low * (high / low) ** ((code - first) / (last - first));
    const from = spec.x[0] + column * heat.width;
    const steps = heat.width > 1 ? `${from}–${Math.min(from + heat.width - 1, spec.x[1])}` : from;
    out.textContent = fill(said.cell, { name: heat.names[heat.row], steps, value: odd ?? number(value) });
  }

  // zoom: what is drawn is moved and stretched; labels and grid are made anew
  function zoom(low, high) {
    view = [Math.max(whole[0], low), Math.min(whole[1], high)];
    const zoomed = view[0] > whole[0] || view[1] < whole[1];
    document.getElementById("reset").hidden = !zoomed;
    for (const chart of charts) {
      const full = chart.spec.x[1] - chart.spec.x[0] + 1, kx = full / (view[1] - view[0]);
      const tx = (-WIDTH * (view[0] - chart.spec.x[0] + 0.5) * kx) / full;
      const fit = fitted(chart, zoomed);
      for (const group of all(".zoom-x", chart.figure)) group.setAttribute("transform", `matrix(${kx} 0 0 1 ${tx} 0)`);
      const inner = chart.figure.querySelector(".zoom");
      inner.setAttribute("transform", `matrix(${kx} 0 0 ${fit.k} ${tx} ${fit.t})`);
      if (fit.axis) labels(chart, fit.axis);
      const line = chart.figure.querySelector(".x");
      line.replaceChildren(...ticks(view[0], view[1], false, 6).filter(Number.isInteger).map((tick) => {
        const node = make("span", place(tick) > 0.96 ? "ends" : "", number(tick));
        node.style.left = `${place(tick) * 100}%`;
        return node;
      }));
      for (const flag of all(".flag", chart.figure)) {
        const at = place(Number(flag.dataset.step));
        flag.style.setProperty("--at", `${at * 100}%`);
        flag.style.display = at < 0 || at > 1 ? "none" : "";
      }
    }
    show(here);
  }

  // upwards: the values that are in view fill the chart
  function fitted(chart, zoomed) {
    if (!chart.spec.y || chart.spec.fixed) return { k: 1, t: 0 };
    const [low, high, log] = chart.spec.y, scale = log ? Math.log10 : (value) => value;
    let from = Infinity, to = -Infinity;
    for (const one of chart.series) one.steps.forEach((step, i) => {
      const value = one.values[i];
      if (step < view[0] || step > view[1] || !Number.isFinite(value) || (log && value <= 0)) return;
      from = Math.min(from, value);
      to = Math.max(to, value);
    });
    if (!zoomed || from > to) return { k: 1, t: 0, axis: [low, high, log] };
    const a = scale(low), b = scale(high), room = (scale(to) - scale(from)) * 0.06 || (b - a) * 0.02;
    const c = Math.max(a, scale(from) - room), d = Math.min(b, scale(to) + room), k = (b - a) / (d - c);
    return { k, t: (-HEIGHT * (b - d) * k) / (b - a), axis: log ? [10 ** c, 10 ** d, log] : [c, d, log] };
  }

  function labels(chart, [low, high, log]) {
    const scale = log ? Math.log10 : (value) => value;
    const at = (value) => 1 - (scale(value) - scale(low)) / (scale(high) - scale(low));
    const values = ticks(low, high, log, 5);
    chart.figure.querySelector(".y").replaceChildren(...values.map((tick) => {
      const node = make("span", "", number(tick));
      node.style.top = `${at(tick) * 100}%`;
      return node;
    }));
    chart.figure.querySelector(".grid").replaceChildren(...values.map((tick) => {
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("d", `M0 ${Math.round(HEIGHT * at(tick))}h${WIDTH}`);
      return path;
    }));
  }

  // pointer and keys
  const stepsOf = (chart) => (chart.series.length ? chart.series.reduce((a, b) => (b.steps.length > a.steps.length ? b : a)).steps : null);
  for (const chart of charts) {
    let begin = null, box = null;
    const share = (event) => {
      const frame = chart.area.getBoundingClientRect();
      return [(event.clientX - frame.left) / frame.width, (event.clientY - frame.top) / frame.height];
    };
    const at = (x) => view[0] + Math.min(1, Math.max(0, x)) * (view[1] - view[0]);
    const point = (event) => {
      const [x, y] = share(event);
      if (chart.heat) chart.heat.row = Math.min(chart.heat.names.length - 1, Math.max(0, Math.floor(y * chart.heat.names.length)));
      const step = Math.round(at(x)), longest = chart.series.reduce((a, b) => (a && a.steps.length >= b.steps.length ? a : b), null);
      show(longest && longest.steps.length ? longest.steps[nearest(longest, step)] : step);
    };
    chart.area.addEventListener("pointerdown", (event) => {
      if (event.target.closest("a")) return;
      point(event);
      if (event.pointerType === "mouse" && event.button === 0) { begin = share(event)[0]; chart.area.setPointerCapture(event.pointerId); }
    });
    chart.area.addEventListener("pointermove", (event) => {
      point(event);
      if (begin === null) return;
      if (!box) { box = make("div", "selection"); chart.area.append(box); }
      const x = share(event)[0], from = Math.max(0, Math.min(begin, x)), to = Math.min(1, Math.max(begin, x));
      box.style.left = `${from * 100}%`;
      box.style.width = `${(to - from) * 100}%`;
    });
    const end = (event) => {
      const x = share(event)[0], from = begin;
      box?.remove();
      box = null;
      begin = null;
      if (from !== null && Math.abs(x - from) > 0.015) zoom(at(Math.min(from, x)), at(Math.max(from, x)));
    };
    chart.area.addEventListener("pointerup", end);
    chart.area.addEventListener("pointercancel", () => { box?.remove(); box = begin = null; });
    chart.area.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse" && begin === null) show(null); });
    chart.area.addEventListener("dblclick", () => zoom(...whole));
    chart.figure.addEventListener("keydown", (event) => {
      if (event.target !== chart.figure) return;
      const steps = stepsOf(chart), size = event.shiftKey ? 10 : 1, way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (way) {
        const index = steps ? steps.indexOf(here) : -1;
        if (!steps) show(here === null ? whole[0] + 0.5 : Math.min(whole[1] - 0.5, Math.max(whole[0] + 0.5, here + way * size * chart.heat.width)));
        else show(index < 0 ? steps[here === null ? (way > 0 ? 0 : steps.length - 1) : nearest(chart.series.find((one) => one.steps === steps), here)]
          : steps[Math.min(steps.length - 1, Math.max(0, index + way * size))]);
      } else if (chart.heat && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
        chart.heat.row = Math.min(chart.heat.names.length - 1, Math.max(0, chart.heat.row + (event.key === "ArrowUp" ? -1 : 1)));
        show(here ?? whole[0] + 0.5);
      } else if (event.key === "Escape") { show(null); zoom(...whole); }
      else if ((event.key === "+" || event.key === "-") && here !== null) {
        const half = ((view[1] - view[0]) / 2) * (event.key === "+" ? 0.5 : 2);
        zoom(here - Math.max(1, half), here + Math.max(1, half));
      } else return;
      event.preventDefault();
    });
  }
  document.getElementById("reset").addEventListener("click", () => zoom(...whole));

  for (const button of all(".go")) button.addEventListener("click", () => {
    const step = Number(button.dataset.step);
    if (!charts.length) return;
    if (step < view[0] || step > view[1]) zoom(...whole);
    show(step);
    charts[0].figure.scrollIntoView({ block: "start" });
    charts[0].figure.focus({ preventScroll: true });
  });

  for (const button of all(".copy")) button.addEventListener("click", async () => {
    const text = button.parentElement.querySelector("pre");
    getSelection().selectAllChildren(text);
    try { await navigator.clipboard.writeText(text.textContent); } catch { document.execCommand("copy"); }
    button.textContent = said.copied;
  });

  for (const box of all(".filter input")) box.addEventListener("change", () =>
    box.closest(".events").classList.toggle(`no-${box.value}`, !box.checked));

  for (const matrix of all(".matrix")) {
    const spec = JSON.parse(matrix.querySelector("script.data").textContent), detail = matrix.querySelector(".detail");
    const heads = all("thead th", matrix).map((node) => node.textContent);
    const text = (index) => spec.texts[index];
    for (const row of all("tbody tr", matrix)) for (const button of all("button", row)) {
      const passed = button.parentElement.className === "p" ? said.passed : button.textContent.slice(2);
      button.setAttribute("aria-label", fill(said.button, { probe: row.cells[0].textContent, checkpoint: heads[button.parentElement.cellIndex], result: passed }));
      button.setAttribute("aria-expanded", "false");
    }
    matrix.addEventListener("click", (event) => {
      const button = event.target.closest("tbody button");
      if (!button) return;
      const open = button.getAttribute("aria-expanded") === "true";
      for (const other of all("[aria-expanded=true]", matrix)) other.setAttribute("aria-expanded", "false");
      detail.hidden = open;
      if (open) return;
      button.setAttribute("aria-expanded", "true");
      const row = button.closest("tr"), [output, details, more] = spec.rows[row.sectionRowIndex][1][button.parentElement.cellIndex - 1];
      const list = make("ul", "plain");
      list.append(...details.map((index) => make("li", "", text(index))));
      const section = (title, body) => [make("h4", "", title), make("pre", "", body)];
      detail.replaceChildren(
        make("h3", "", button.getAttribute("aria-label")),
        ...(details.length ? [list] : []),
        ...section(said.asked, text(spec.rows[row.sectionRowIndex][0])),
        ...section(said.output, text(output)),
        ...more.flatMap(([title, index]) => section(title, text(index))),
      );
      detail.scrollIntoView({ block: "nearest" });
    });
  }

  // a flag leads to its card, also where that is folded away (newer browsers do this themselves)
  addEventListener("hashchange", () => {
    const card = document.getElementById(location.hash.slice(1)), folded = card?.closest("details");
    if (folded) { folded.open = true; card.scrollIntoView(); }
  });
  addEventListener("beforeprint", () => { for (const node of all("details")) node.open = true; });
})();
