"""`compare`: every run against the first."""

import math
import re

from ..detect.parting import FLOOR
from ..identity.run_name import changed_name
from ..logs.names import LOSS
from .axis import places
from .curves import evaluation, partings
from .differences import differences
from .exact import exact
from .facts import FACTS, facts
from .layers import layers
from .model import Comparison, Differences, Pair, Run, Spread
from .probes import probes
from .relation import caveats, reasons, relation, same_evaluation_set, scale_keys, seed_alone
from .verdict import overall, verdict


def compare(runs: list[Run], by: str | None = None) -> Comparison:
    """Compare runs; the first is the reference.

    Runs that differ from A in the seed alone are compared first. How far they lie apart is what any difference of the
    others must exceed.

    Args:
        by: a name of `facts.FACTS` to sort the runs by, the best first; None keeps their order.
    """
    a = runs[0]
    found = {run.id: differences(a, run) for run in runs[1:]}
    pairs = {run.id: _pair(a, run, found[run.id]) for run in runs[1:] if seed_alone(found[run.id])}
    spread = _spread(list(pairs.values()))
    pairs |= {run.id: _pair(a, run, found[run.id], spread) for run in runs[1:] if run.id not in pairs}
    ordered = [pairs[run.id] for run in runs[1:]]
    return Comparison(runs, ordered, overall(runs, ordered), _ordered(runs, by), spread)


def _spread(seeds: list[Pair]) -> Spread | None:
    """The largest difference between A and a run of another seed; None without such a run."""
    train = [abs(one.parting.last) for pair in seeds for one in pair.curves if one.column == LOSS]
    evaluated = [abs(pair.evaluation.difference) for pair in seeds if pair.evaluation]
    if not train and not evaluated:
        return None
    return Spread([pair.b for pair in seeds], max(train, default=None), max(evaluated, default=None))


def _pair(a: Run, b: Run, found: Differences, spread: Spread | None = None) -> Pair:
    where = places(a, b)
    bits = exact(a, b) if where.axis.name == "steps" else None
    related = relation(a, b, found, bits)
    same_kind = a.curves.kind == b.curves.kind
    comparable = same_kind and a.curves.kind != "rl" and not scale_keys(found)
    stages = a.summary.brief.stage, b.summary.brief.stage
    held = same_kind and a.curves.kind != "rl" and (None in stages or stages[0] == stages[1])
    curves, evaluated = [], None
    if held and where.axis.low is not None:
        curves = partings(a, b, where, max(FLOOR, (spread and spread.train) or 0.0))
    if held:
        evaluated = evaluation(a, b, same_evaluation_set(a, b, found), where, (spread and spread.eval) or 0.0)
    if related == "seeds":  # by definition noise: what lies between them is told as a level, not as a parting
        curves = [one.as_level() for one in curves]
    probed = probes(a, b)
    return Pair(
        a=a.id,
        b=b.id,
        differences=found,
        axis=where.axis,
        exact=bits,
        curves=curves,
        evaluation=evaluated,
        layers=layers(a, b, where),
        probes=probed,
        relation=related,
        reasons=reasons(a, b, bits) if related == "nondeterminism" else [],
        caveats=caveats(a, b, found, where, bits, curves, evaluated),
        run_name=_name(found),
        verdict=verdict(a, b, related, bits, curves, evaluated, probed, comparable),
    )


def _name(found: Differences) -> str:
    """What B changed; of what is not in the config a short hash."""
    changes: dict[str, object] = {}
    for row in found.rows:
        if row.note or row.group in ("packages", "hardware", "world"):
            continue
        if row.group == "code":
            if row.key == "sha" and row.b:
                changes["code"] = str(row.b)[:7]
            continue
        if row.key in ("rows.sha256", "weights.sha256"):
            changes[row.key.partition(".")[0]] = str(row.b)[:7]
        elif row.key == "callbacks":
            changes["callbacks"] = [re.split(r"[:./\\]", str(one).split()[0])[-1] for one in row.b] or None
        elif "." not in row.key and "sha256" not in row.key and not isinstance(row.b, dict):
            changes["model_name_or_path" if row.key == "name_or_path" else row.key] = row.b
    if {"dataset", "cutoff_len", "template", "packing", "max_samples"} & {*changes}:
        changes.pop("rows", None)
    if "model_name_or_path" in changes:
        changes.pop("weights", None)
    if changes.get("finetuning_type") not in (None, "lora"):  # what the other kind of tuning was set to
        changes = {key: value for key, value in changes.items() if not key.startswith("lora_")}
    weight = ("stage", "learning_rate", "finetuning_type", "lora_rank", "lora_alpha")
    ordered = sorted(changes, key=lambda key: weight.index(key) if key in weight else len(weight))
    return changed_name({key: changes[key] for key in ordered})


def _ordered(runs: list[Run], by: str | None) -> list[str]:
    if by is None:
        return [run.id for run in runs]
    sign = -1 if FACTS[by] == "higher" else 1

    def key(run: Run) -> float:
        value = facts(run)[by]
        return math.inf if value is None or math.isnan(value) else sign * value

    return [run.id for run in sorted(runs, key=key)]
