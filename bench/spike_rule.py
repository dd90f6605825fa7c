"""Our gradient-norm rule beside published ones, over public training logs: false alarms, hits, injected spikes.

    python bench/spike_rule.py [LOGS] [--list]      LOGS holds LABELS.csv; default: ../shared/logs beside the repository

The package must be installed (or PYTHONPATH=.). Takes about a minute.

The files are split by a hash of their name into a tuning half and a held-out half; thresholds were chosen on the tuning
half only. Alarms of the published rules that are at most 10 rows apart count once; our rule merges by itself.
"""

import argparse
import csv
import hashlib
import math
import statistics
import sys
from collections.abc import Callable
from itertools import repeat
from pathlib import Path

from reference_rules import ftdoctor_like, olmo_core, robust_z, zclip

from llamafactory_obs.detect import SpikeDetector
from llamafactory_obs.logs.read import read

NOT_ILL = {"healthy", "jitter", "overfit", "overfit_suspect"}  # nothing in the norm asks for an alarm
ILL = {"spike", "diverged", "nan", "resume_gap"}
Row = tuple[int, float | None, float | None]  # step, norm, loss
Alarm = tuple[int, str]  # index of the row, level
REACH = 25  # an injected spike counts as found up to so many rows after its start


def read_folder(folder: Path) -> dict[str, tuple[str, list[Row]]]:
    """name -> (verdict of LABELS.csv, rows) of every labelled file with at least 10 rows that have a gradient norm."""
    logs = {}
    with (folder / "LABELS.csv").open(encoding="utf-8", newline="") as table:
        for entry in csv.DictReader(table):
            curves = read(folder / entry["file"])
            norms, losses = curves.columns.get("train/grad_norm", ()), curves.columns.get("train/loss", repeat(None))
            rows = [row for row in zip(curves.steps, norms, losses, strict=False) if row[1] is not None]
            if len(rows) >= 10:
                logs[entry["file"]] = (entry["verdict"], rows)
    return logs


def ours(rows: list[Row], with_loss: bool, **options) -> list[Alarm]:
    detector, alarms = SpikeDetector(**options), []
    for i, (step, norm, loss) in enumerate(rows):
        finding = detector.update(step, norm, loss if with_loss else None)
        if finding and finding.level != "info":
            alarms.append((i, finding.level))
    return alarms


def published(rule: Callable[[list[float | None]], list[int]]) -> Callable[[list[Row]], list[Alarm]]:
    def run(rows: list[Row]) -> list[Alarm]:
        hits = rule([g if g is not None and math.isfinite(g) else None for _, g, _ in rows])
        return [(i, "warn") for before, i in zip([-math.inf, *hits], hits, strict=False) if i - before > 10]

    return run


RULES: dict[str, Callable[[list[Row]], list[Alarm]]] = {
    "ours, norm only": lambda rows: ours(rows, False),
    "ours, norm + loss": lambda rows: ours(rows, True),
    "ZClip 2.5 sigma": published(zclip),
    "OLMo-core 6 sigma/128": published(olmo_core),
    "ftdoctor-like 10x & z8": published(ftdoctor_like),
    "robust z 3.5/200": published(robust_z),
}


def half(name: str) -> str:
    return "tuning" if int(hashlib.sha256(name.encode()).hexdigest(), 16) % 2 == 0 else "held-out"


def inject(rows: list[Row], at: int, kind: str) -> list[Row]:
    """A copy with a fault that starts at row `at`: (norm factor, loss rise in nats or share of the loss) per row."""
    shape, _, factor = kind.partition(" ")
    out = list(rows)
    for k, i in enumerate(range(at, len(rows))):
        step, norm, loss = rows[i]
        up, lift = 1.0, 0.0
        if shape in ("point", "point+loss"):
            up, lift = (float(factor), 0.5 * (shape == "point+loss")) if k == 0 else (1.0, 0.0)
        elif shape == "ramp":
            up = 1.05 ** min(k, 60)
        elif shape == "blow-up":
            up, lift = 1.2 ** min(k, 40), 0.05 * min(k, 40)
        if loss is not None and lift:
            loss += max(lift * abs(loss), lift * 0.6)
        out[i] = (step, None if norm is None else norm * up, loss)
    return out


KINDS = [f"{shape} {n}" for shape in ("point", "point+loss") for n in (3, 10, 30)] + ["ramp", "blow-up"]


def recall(rule: Callable, logs: list[list[Row]], kind: str) -> tuple[float, float, float | None]:
    """Share found at any level, share found as error, median delay in rows; alarms of the clean log do not count."""
    any_hits, error_hits, delays, total = 0, 0, [], 0
    for rows in logs:
        clean = set(rule(rows))
        for at in (len(rows) * 2 // 5, len(rows) * 3 // 5, len(rows) * 4 // 5):
            new = [(i, level) for i, level in rule(inject(rows, at, kind)) if (i, level) not in clean]
            near = [(i - at, level) for i, level in new if 0 <= i - at <= REACH]
            total += 1
            any_hits += bool(near)
            error_hits += any(level == "error" for _, level in near)
            delays += [near[0][0]] if near else []
    return any_hits / total, error_hits / total, statistics.median(delays) if delays else None


def false_alarms(rule: Callable, logs: list[list[Row]]) -> str:
    found = [[level for _, level in rule(rows)] for rows in logs]
    per_1000 = 1000 / sum(len(rows) for rows in logs)
    warns, errors = (sum(levels.count(level) for levels in found) * per_1000 for level in ("warn", "error"))
    return f"{warns:.2f} | {errors:.2f} | {sum(bool(f) for f in found)}/{len(found)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(__file__).resolve().parents[2] / "shared" / "logs"
    parser.add_argument("logs", nargs="?", type=Path, default=default)
    parser.add_argument("--list", action="store_true", help="name every alarm of our rule")
    args = parser.parse_args()
    if not (args.logs / "LABELS.csv").is_file():
        print(f"{args.logs} holds no LABELS.csv: give the folder of the public logs as the argument", file=sys.stderr)
        return 2
    logs = read_folder(args.logs)
    for part in ("tuning", "held-out"):
        mine = {name: entry for name, entry in logs.items() if half(name) == part}
        good = [rows for verdict, rows in mine.values() if verdict in NOT_ILL]
        ill = {name: rows for name, (verdict, rows) in mine.items() if verdict in ILL}
        long = [rows for rows in good if len(rows) >= 100]
        points = sum(len(rows) for rows in good)
        print(f"\n### {part} half: {len(good)} runs that are not ill ({points:,} rows), {len(ill)} ill ones\n")
        print("| rule | warns /1k | errors /1k | runs hit | ill runs hit (as error) |\n|---|---|---|---|---|")
        for name, rule in RULES.items():
            hit = [{level for _, level in rule(rows)} for rows in ill.values()]
            ill_text = f"{sum(bool(h) for h in hit)}/{len(hit)} ({sum('error' in h for h in hit)})"
            print(f"| {name} | {false_alarms(rule, good)} | {ill_text} |")
        print(f"\nInjected into {len(long)} of them (100 rows or more), 3 places each:", end=" ")
        print("% found (as error), d = median delay in rows\n")
        print(f"| rule | {' | '.join(KINDS)} |\n|---|{'---|' * len(KINDS)}")
        for name, rule in RULES.items():
            cells = []
            for kind in KINDS:
                some, error, delay = recall(rule, long, kind)
                as_error = f" ({100 * error:.0f})" if "ours" in name else ""
                cells.append(f"{100 * some:.0f}{as_error}{f' d{delay:.0f}' if delay else ''}")
            print(f"| {name} | {' | '.join(cells)} |")
        others = [(n, v, r) for n, (v, r) in mine.items() if v not in NOT_ILL | ILL]
        print("\nOther verdicts (ours, norm + loss): ", end="")
        print("; ".join(f"{n.split('/')[1][:3]} {v}: {len(ours(r, True))} alarms" for n, v, r in others) or "none")
        if args.list:
            for name, (verdict, rows) in mine.items():
                for i, level in ours(rows, True):
                    print(f"  {name} ({verdict}) step {rows[i][0]}: {level}, norm {rows[i][1]:.4g}, loss {rows[i][2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
