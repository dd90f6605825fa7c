"""The detectors of `diagnose` beside published rules and tools: false alarms, recall and delay, verdicts per label.

    python bench/detectors.py [LOGS] [--half tuning|held-out] [--tools PYTHON]

LOGS holds LABELS.csv; default: ../shared/logs beside the repository. `--tools` is the interpreter of an environment in
which losslint and ftdoctor are installed; without it they are looked for beside this one. Takes some minutes.

The files are split by a hash of their name, as in bench/spike_rule.py; thresholds were chosen on the tuning half only.
A fault is put at 40, 60 and 80 % of every healthy log with 100 rows or more. An alarm counts as found up to `REACH`
rows after it, unless the clean log alarms there too; alarms of a published rule at most 10 rows apart count once.
"""

import argparse
import csv
import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from outside_tools import flagged_by_tools
from reference_rules import (
    adagc_score,
    ftdoctor_loss,
    guarftrain,
    lightning,
    llm_foundry,
    losslint_rule,
    megatron,
    merged,
    olmo2_score,
    olmo_core,
    robust_z,
    trainpulse,
    trainscope_cusum,
    two_speeds,
    zclip,
)
from spike_rule import half

from llamafactory_obs.diagnosis.judge import facts_of, judge
from llamafactory_obs.diagnosis.run_facts import RunFacts
from llamafactory_obs.diagnosis.shapes import Shapes
from llamafactory_obs.logs.curves import Curves
from llamafactory_obs.logs.read import read

REACH = 25
PLACES = (0.4, 0.6, 0.8)
NAMES = {"spike", "diverged", "nan", "inf", "resume_gap", "zero_loss", "grad_norm_spike"}
Rows = list[dict[str, float]]  # column -> number, and "step"

PUBLISHED: dict[str, Callable] = {
    "two speeds (to beat)": two_speeds,
    "ZClip 2.5 sigma": zclip,
    "OLMo-core 6 sigma/128": olmo_core,
    "OLMo 2 7 sigma/1000": olmo2_score,
    "AdaGC 10 sigma/1000": adagc_score,
    "llm-foundry 2x, 5 in a row": llm_foundry,
    "Lightning 3x/10": lightning,
    "Megatron 10x max": megatron,
    "guarftrain 1.5x/10": guarftrain,
    "trainpulse 5x/50": trainpulse,
    "losslint 10x/25": losslint_rule,
    "ftdoctor 1.8x & z 6": ftdoctor_loss,
    "trainscope CUSUM 1/6": trainscope_cusum,
    "trainscope z 3.5/200": robust_z,
}

#: what happens to the loss k rows after the fault began
ON_THE_LOSS: dict[str, Callable[[int], float]] = {
    "2x 1 row": lambda k: 2.0 if k == 0 else 1.0,
    "3x 1 row": lambda k: 3.0 if k == 0 else 1.0,
    "1.5x 10 rows": lambda k: 1.5 if k < 10 else 1.0,
    "step 1.3x": lambda k: 1.3,
    "ramp 2 %": lambda k: 1.02 ** min(k, 60),
    "blow-up 1.2^k": lambda k: 1.2 ** min(k, 40),
}


def rows_of(curves: Curves) -> Rows:
    """The rows that hold a finite loss above 0."""
    columns = [(name, c) for name, c in curves.columns.items() if name.startswith("train/")]
    rows = []
    for row, step in enumerate(curves.steps):
        values = {name: c.values[row] for name, c in columns if c.present[row]} | {"step": step}
        if math.isfinite(loss := values.get("train/loss", math.nan)) and loss > 0:
            rows.append(values)
    return rows


def ours(rows: Rows, facts: RunFacts, resume_at: int | None = None, names: set[str] = NAMES) -> list[int]:
    """Rows at which `Shapes` raises a warning or an error of the named kinds."""
    shapes, alarms = Shapes(facts), []
    for i, row in enumerate(rows):
        if i == resume_at:
            shapes.begin("resume")
        found = shapes.update(row["step"], row)
        if any(f.level != "info" and f.name in names and not f.name.endswith("_over") for f in found):
            alarms.append(i)
    return merged(alarms, 0)


def with_loss(rows: Rows, at: int, factor: Callable[[int], float]) -> Rows:
    return rows[:at] + [row | {"train/loss": row["train/loss"] * factor(k)} for k, row in enumerate(rows[at:])]


def norm_precursor(rows: Rows, at: int) -> Rows:
    """The norm doubles each row from `at` on; the loss blows up 8 rows later."""
    out = rows[:at]
    for k, row in enumerate(rows[at:]):
        up = {"train/loss": row["train/loss"] * 1.2 ** max(0, min(k - 8, 40))}
        out.append(row | up | {"train/grad_norm": row["train/grad_norm"] * 2.0 ** min(k, 10)})
    return out


def nan_behind_zero(rows: Rows, at: int) -> Rows:
    """The Trainer logs 0.0 with a NaN norm."""
    return rows[:at] + [row | {"train/loss": 0.0, "train/grad_norm": math.nan} for row in rows[at:]]


def found(clean: list[int], alarms: list[int], at: int) -> int | None:
    """Rows from the fault to the first alarm that the clean log does not raise."""
    near = [i - at for i in alarms if 0 <= i - at <= REACH and i not in clean]
    return near[0] if near else None


def cell(delays: list[int | None]) -> str:
    hits = [d for d in delays if d is not None]
    if not delays:
        return "-"
    middle = statistics.median(hits) if hits else 0
    return f"{100 * len(hits) / len(delays):.0f}" + (f" d{middle:.0f}" if middle else "")


def losses_of(rows: Rows) -> list[float]:
    return [row["train/loss"] for row in rows]


def false_alarms(alarms: list[list[int]], rows: int) -> str:
    return f"{1000 * sum(map(len, alarms)) / rows:.2f} | {sum(bool(a) for a in alarms)}/{len(alarms)}"


def loss_table(healthy: list[tuple[RunFacts, Rows]]) -> None:
    total = sum(len(rows) for _, rows in healthy)
    long = [(facts, rows) for facts, rows in healthy if len(rows) >= 100]
    only_loss = [(facts, [{k: r[k] for k in ("step", "train/loss")} for r in rows]) for facts, rows in long]
    print(
        f"\n{len(healthy)} healthy logs, {total:,} rows; faults in {len(long)} of them. "
        "% found, d median delay in rows\n"
    )
    print(
        f"| rule | false alarms /1k | runs hit | {' | '.join(ON_THE_LOSS)} |\n|---|---|---|{'---|' * len(ON_THE_LOSS)}"
    )
    clean = [ours(rows, facts, names={"spike", "diverged"}) for facts, rows in healthy]
    cells = {kind: [] for kind in ON_THE_LOSS}
    for facts, rows in only_loss:
        known = ours(rows, facts)
        for kind, factor in ON_THE_LOSS.items():
            for at in (int(len(rows) * share) for share in PLACES):
                end = min(len(rows), at + REACH + 1)
                cells[kind].append(found(known, ours(with_loss(rows[:end], at, factor), facts), at))
    print(f"| **ours** | {false_alarms(clean, total)} | {' | '.join(cell(c) for c in cells.values())} |")
    for name, rule in PUBLISHED.items():
        clean = [merged(rule(losses_of(rows))) for _, rows in healthy]
        cells = []
        for factor in ON_THE_LOSS.values():
            delays = []
            for _, rows in only_loss:
                known = rule(losses_of(rows))
                for at in (int(len(rows) * share) for share in PLACES):
                    end = min(len(rows), at + REACH + 1)
                    delays.append(found(known, rule(losses_of(with_loss(rows[:end], at, factor))), at))
            cells.append(cell(delays))
        print(f"| {name} | {false_alarms(clean, total)} | {' | '.join(cells)} |")


def other_table(healthy: list[tuple[RunFacts, Rows]]) -> None:
    """Faults that a loss alone does not show."""
    long = [(facts, rows) for facts, rows in healthy if len(rows) >= 100]
    normed = [(f, rows) for f, rows in long if all("train/grad_norm" in row for row in rows)]
    print("\n| fault | runs | ours found | false alarms on the clean runs |\n|---|---|---|---|")
    for name, change, runs in (
        ("norm doubles, loss follows 8 rows later", norm_precursor, normed),
        ("NaN behind 0.0", nan_behind_zero, normed),
    ):
        delays, false = [], 0
        for facts, rows in runs:
            known = ours(rows, facts)
            false += bool(known)
            for at in (int(len(rows) * share) for share in PLACES):
                delays.append(found(known, ours(change(rows[: at + REACH + 1], at), facts), at))
        print(f"| {name} | {len(runs)} | {cell(delays)} | {false}/{len(runs)} |")
    for name, factor in (("resume, loss 1.15x", 1.15), ("resume, loss 1.3x", 1.3), ("resume, rate starts anew", None)):
        delays, false, tries = [], 0, 0
        for facts, rows in long:
            for at in (int(len(rows) * share) for share in PLACES):
                part = rows[: at + REACH + 1]
                tries += 1
                false += bool(ours(part, facts, at, {"resume_gap"}))
                if factor is None:
                    if "train/lr" not in rows[at]:
                        continue
                    peak = max(row.get("train/lr", 0.0) for row in rows)
                    if rows[at]["train/lr"] > 0.8 * peak:
                        continue
                    bad = part[:at] + [row | {"train/lr": peak} for row in part[at:]]
                else:
                    bad = with_loss(part, at, lambda k, factor=factor: factor)
                delays.append(found([], ours(bad, facts, at, {"resume_gap"}), at))
        print(f"| {name} | {len(delays)} places | {cell(delays)} | {false}/{tries} places |")


def verdicts(entries: list[dict], folder: Path, tools: str | None) -> None:
    ill = [e for e in entries if e["verdict"] not in ("healthy", "rl", "not_a_training_log")]
    well = [e for e in entries if e["verdict"] == "healthy"]
    said = {e["file"]: judge(read(folder / e["file"])).verdict for e in entries}
    right = sum(said[e["file"]] == e["verdict"] for e in entries)
    flagged = {name: said[name] not in ("healthy", "rl", "not_a_training_log") for name in said}
    print(
        f"\nVerdicts: {right} of {len(entries)} as labelled. "
        f"Flagged: {_count(ill, flagged)} ill, {_count(well, flagged)} healthy."
    )
    for entry in entries:
        if said[entry["file"]] != entry["verdict"]:
            print(f"  {entry['file']}: {said[entry['file']]}, labelled {entry['verdict']} ({entry['label']})")
    for tool, flags in flagged_by_tools([e["file"] for e in entries], folder, tools).items():
        print(f"{tool}: flags {_count(ill, flags)} ill, {_count(well, flags)} healthy.")


def _count(entries: list[dict], flagged: dict[str, bool]) -> str:
    return f"{sum(flagged.get(e['file'], False) for e in entries)} of {len(entries)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(__file__).resolve().parents[2] / "shared" / "logs"
    parser.add_argument("logs", nargs="?", type=Path, default=default)
    parser.add_argument("--half", choices=("tuning", "held-out"), help="only this half")
    parser.add_argument("--tools", metavar="PYTHON", help="interpreter of an environment with losslint and ftdoctor")
    args = parser.parse_args()
    if not (args.logs / "LABELS.csv").is_file():
        print(f"{args.logs} holds no LABELS.csv: give the folder of the public logs as the argument", file=sys.stderr)
        return 2
    with (args.logs / "LABELS.csv").open(encoding="utf-8", newline="") as table:
        entries = list(csv.DictReader(table))
    for part in ("tuning", "held-out"):
        if args.half in (None, part):
            mine = [e for e in entries if half(e["file"]) == part]
            print(f"\n### {part} half: {len(mine)} files")
            healthy = []
            for entry in mine:
                if entry["verdict"] == "healthy":
                    curves = read(args.logs / entry["file"])
                    healthy.append((facts_of(curves), rows_of(curves)))
            verdicts(mine, args.logs, args.tools)
            loss_table(healthy)
            other_table(healthy)
    return 0


if __name__ == "__main__":
    sys.exit(main())
