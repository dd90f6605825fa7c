// What is known of the runs, and the polling that keeps it fresh. Each answer holds only what has changed since the last.

const words = { nan: NaN, inf: Infinity, "-inf": -Infinity };
const real = (value) => (typeof value === "string" ? words[value] : value);

// one line: steps ascending; values and means of the same length, null where there is none
class Line {
  steps = [];
  values = [];
  means = null;

  // `from`: this step and all behind it are written anew (a resume, or other points were chosen); null: everything
  take({ from, s, v, m }) {
    let end = from === null ? 0 : this.steps.length, step = 0;
    while (end && this.steps[end - 1] >= from) end--;
    this.steps.length = this.values.length = end;
    for (let i = 0; i < s.length; i++) this.steps.push((step += s[i]));
    for (let i = 0; i < v.length; i++) this.values.push(real(v[i]));
    if (!m) { this.means = null; return; }
    this.means ??= [];
    this.means.length = end;
    for (let i = 0; i < m.length; i++) this.means.push(real(m[i]));
  }
}

export class Store {
  board = "";
  tick = 0;
  listing = [];
  chosen = null; // ids; null: what the server proposes
  colours = new Map();
  runs = new Map(); // id -> {head, alerts, marks, checkpoints, probes, findings, lines}
  clockSkew = 0; // the server's clock minus ours, seconds
  seen = 0; // when the last answer came, ms

  constructor(onChange, onLink) {
    this.onChange = onChange;
    this.onLink = onLink;
    this.failures = 0;
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.now(); });
  }

  choose(ids) {
    this.chosen = ids;
    for (const id of [...this.runs.keys()]) if (!ids.includes(id)) this.runs.delete(id);
    this.onChange(new Set(["runs"]));
    this.now();
  }

  now() {
    clearTimeout(this.timer);
    this.poll();
  }

  async poll() {
    const mine = (this.asked = {}); // an answer to an older question is dropped
    const query = new URLSearchParams({ since: this.tick, board: this.board, have: [...this.runs.keys()].join(",") });
    if (this.chosen) query.set("runs", this.chosen.join(","));
    let wait = document.hidden ? 15000 : 2000;
    try {
      const answer = await fetch(`api/state?${query}`, { cache: "no-store", signal: AbortSignal.timeout(20000) });
      if (mine !== this.asked) return;
      if (answer.status === 401 || answer.status === 403) throw new Error("token");
      if (!answer.ok) throw new Error(String(answer.status));
      const body = await answer.json();
      if (mine !== this.asked) return;
      this.failures = 0;
      this.seen = Date.now();
      this.clockSkew = body.now - Date.now() / 1000;
      const changed = this.take(body);
      this.onLink("live");
      if (changed.size) this.onChange(changed);
    } catch (error) {
      if (mine !== this.asked) return;
      this.failures++;
      this.onLink(error.message === "token" ? "token" : "lost");
      wait = Math.min(10000, 1000 * 1.6 ** this.failures);
    }
    this.timer = setTimeout(() => this.poll(), wait);
  }

  // returns what has changed: names of parts
  take(body) {
    const changed = new Set();
    if (body.reset) { this.runs.clear(); changed.add("runs"); }
    [this.board, this.tick] = [body.board, body.tick];
    if (body.listing) { this.listing = body.listing; changed.add("listing"); }
    // a choice that was kept from other runs means nothing here
    if (this.chosen?.length && this.listing.length && !this.listing.some((one) => this.chosen.includes(one.id))) this.chosen = null;
    const gone = [...this.runs.keys()].filter((id) => !body.chosen.includes(id));
    for (const id of gone) this.runs.delete(id);
    if (gone.length) changed.add("runs");
    for (const [id, parts] of Object.entries(body.runs)) {
      if (!this.runs.has(id)) { this.runs.set(id, { id, lines: {} }); changed.add("runs"); }
      const run = this.runs.get(id);
      for (const [name, part] of Object.entries(parts)) {
        if (name === "curves") this.takeCurves(run, part);
        else run[name] = part;
        changed.add(name);
        if (part?.refused || part?.failed) { this.runs.set(id, { id, lines: {}, head: part }); changed.add("runs"); }
      }
    }
    return changed;
  }

  takeCurves(run, lines) {
    for (const [name, news] of Object.entries(lines)) (run.lines[name] ??= new Line()).take(news);
  }

  // the chosen runs in the order of the listing; each keeps its colour for as long as it is shown
  shown() {
    const out = this.listing.filter((one) => this.runs.has(one.id)).map((one) => ({ ...this.runs.get(one.id), name: one.name }));
    for (const id of [...this.colours.keys()]) if (!this.runs.has(id)) this.colours.delete(id);
    for (const run of out) {
      const taken = new Set(this.colours.values());
      if (!this.colours.has(run.id)) this.colours.set(run.id, [0, 1, 2, 3, 4, 5, 6, 7].find((place) => !taken.has(place)));
      run.colour = this.colours.get(run.id);
    }
    return out;
  }

  serverNow() {
    return Date.now() / 1000 + this.clockSkew;
  }
}
