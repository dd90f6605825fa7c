"""How two runs are related, why equal starts may give unequal numbers, and what a comparison cannot say."""

from ..detect.parting import LEAST
from ..summary.identity_facts import pick
from .axis import Places
from .model import Axis, CurveParting, Differences, EvalPair, Exact, Relation, Run

#: settings that make the loss another quantity
SCALE = (
    "stage", "pref_loss", "pref_beta", "pref_ftx", "pref_bco_weight", "dpo_label_smoothing", "simpo_gamma", "ld_alpha",
    "kto_chosen_weight", "kto_rejected_weight", "label_smoothing_factor", "use_dft_loss", "use_asft_loss",
    "use_eaft_loss", "train_on_prompt", "mask_history", "template", "template_sha256", "tokenizer.files_sha256",
    "tokenizer.chat_template_sha256",
)  # fmt: skip
_NEEDED = (("data", "rows"), ("model", "weights"))


def relation(a: Run, b: Run, differences: Differences, exact: Exact | None) -> Relation:
    """See `model.Pair`. What neither record has may differ: such identities are not called equal."""
    equal = exact is not None and exact.equal
    known = differences.compared == "identity" and not _unknown_of_both(a, b)
    if known and not differences.rows:
        return "identical" if equal else "nondeterminism"
    if equal:
        return "repeat"
    if seed_alone(differences):
        return "seeds"
    return "changed" if differences.rows or _planned_otherwise(exact) else "unknown"


def _unknown_of_both(a: Run, b: Run) -> list[str]:
    """What an identity needs and neither record has."""
    return [
        f"{section}.{name}"
        for section, name in _NEEDED
        if all(pick(run.curves.run, section, name) is None for run in (a, b))
    ]


def seed_alone(differences: Differences) -> bool:
    """Do two runs differ in the seed, and in nothing else but what follows from it?"""
    rows = differences.rows
    return bool(rows) and all(row.group == "seed" or row.note == "follows_seed" for row in rows)


def _planned_otherwise(exact: Exact | None) -> bool:
    """Do the schedule or the place in the data differ no later than the losses? Arithmetic changes neither."""
    first = {one.column: one.step for one in exact.first} if exact else {}
    planned = min((first[name] for name in ("train/lr", "train/epoch") if name in first), default=None)
    return planned is not None and planned <= first.get("train/loss", planned)


def reasons(a: Run, b: Run, exact: Exact | None) -> list[tuple[str, dict]]:
    """Why equal identities may have given other numbers, the most telling first."""
    found: list[tuple[str, dict]] = []
    if exact is not None and exact.first:
        earliest = exact.first[0].step
        at_once = {one.column for one in exact.first if one.step == earliest}
        column = exact.first[0].column
        if any(name.startswith("data/") for name in at_once):
            found.append(("other_batches", {"step": earliest}))
        elif "train/lr" in at_once:
            found.append(("other_schedule", {"step": earliest}))
        elif "train/grad_norm" in at_once and "train/loss" not in at_once:
            found.append(("backward", {"step": earliest}))
        elif "train/loss" in at_once:
            found.append(("forward", {"step": earliest}))
        else:
            found.append(("first_in", {"step": earliest, "column": column}))
        for run in (a, b):
            steps = [step for step in resumes(run) if step <= earliest]
            if steps:
                found.append(("resumed", {"run": run.id, "step": steps[-1]}))
    record = a.curves.run
    world, model, hardware = (record.get(name) or {} for name in ("world", "model", "hardware"))
    if (world.get("world_size") or 1) > 1:
        found.append(("processes", {"count": world["world_size"]}))
    attention = model.get("attn_implementation")
    if hardware.get("gpu_count") and attention in ("flash_attention_2", "flash_attention_3", "sdpa", "flex_attention"):
        found.append(("attention", {"kernel": attention}))
    determinism = record.get("determinism") or {}
    if determinism.get("deterministic") != "yes":
        for reason in determinism.get("reasons") or []:
            found.append(("said", {"reason": str(reason)}))
    return found


def resumes(run: Run) -> list[int]:
    """The steps at which training went on from a checkpoint."""
    steps = [run.curves.steps[one.row] for one in run.curves.breaks if one.kind == "resume"]
    return sorted({*steps, *(one.from_step + 1 for one in run.summary.sessions if one.from_step > 0)})


def scale_keys(differences: Differences) -> list[str]:
    """What makes the two losses other quantities."""
    return [row.key for row in differences.rows if row.key in SCALE]


def caveats(
    a: Run,
    b: Run,
    differences: Differences,
    places: Places,
    exact: Exact | None,
    curves: list[CurveParting],
    evaluated: EvalPair | None,
) -> list[tuple[str, dict]]:
    """What the numbers may not be taken to mean."""
    found: list[tuple[str, dict]] = []
    axis: Axis = places.axis
    if a.curves.kind != b.curves.kind:
        kinds = {name: run.summary.brief.stage or run.curves.kind for name, run in (("a", a), ("b", b))}
        found.append(("other_kind", kinds))
    elif keys := scale_keys(differences):
        found.append(("other_loss", {"keys": ", ".join(keys)}))
    if a.curves.kind == b.curves.kind == "rl":
        found.append(("rl", {}))
    if axis.low is None:
        found.append(("no_overlap", {"a": _span(a), "b": _span(b)}))
    elif curves and curves[0].parting.kind == "too_short":
        found.append(("too_short", {"rows": curves[0].parting.rows, "least": LEAST}))
    for run in (a, b):
        if not run.curves.run:
            found.append(("no_identity", {"run": run.id}))
        if run.summary.going:
            found.append(("going", {"run": run.id, "step": run.summary.steps}))
        if steps := resumes(run):
            found.append(("resumes", {"run": run.id, "steps": ", ".join(map(str, steps))}))
        if any(one.kind == "restart" for one in run.curves.breaks):
            found.append(("restart", {"run": run.id}))
        torn = [note for note in run.curves.notes if "torn" in note]
        if torn:
            found.append(("torn", {"run": run.id, "note": torn[0]}))
    if any(row.group == "seed" for row in differences.rows) and not seed_alone(differences):
        found.append(("other_seed", {}))
    if differences.unknown:
        found.append(("unknown", {"keys": ", ".join(differences.unknown)}))
    if differences.compared == "identity":
        found += [("unknown_of_both", {"key": key}) for key in _unknown_of_both(a, b)]
    if evaluated is not None and evaluated.beyond and evaluated.common is not None:
        step, loss_a, loss_b = evaluated.common
        found.append(("best_beyond", {"run": evaluated.beyond, "step": step, "a": loss_a, "b": loss_b}))
    if exact is not None and exact.equal and a.summary.steps != b.summary.steps:
        run = a if a.summary.steps > b.summary.steps else b
        found.append(("longer", {"run": run.id, "step": run.summary.steps}))
    if exact is not None and exact.rounded and exact.equal:
        found.append(("rounded", {}))
    return found


def same_evaluation_set(a: Run, b: Run, differences: Differences) -> bool | None:
    """Were both evaluated on the same tokens? None where that is not known."""
    changed = {row.key for row in differences.rows if row.group in ("data", "template")}
    if changed & {"eval_dataset", "val_size", "cutoff_len", "train_on_prompt", "mask_history", "template_sha256"}:
        return False
    if differences.compared != "identity":
        return None if not a.curves.settings or not b.curves.settings else (False if changed else None)
    split = any(
        isinstance(run.curves.settings.get("val_size"), float) and run.curves.settings["val_size"] > 0 for run in (a, b)
    )
    if split:
        return not any(key.startswith(("rows", "files.", "datasets.")) for key in changed)
    evaluated = {
        str(one.get("name"))
        for run in (a, b)
        for one in (run.curves.run.get("data") or {}).get("datasets") or []
        if isinstance(one, dict) and one.get("role") == "eval"
    }
    if any(
        key.startswith(f"files.{name}.") or key.startswith(f"datasets.eval.{name}")
        for key in changed
        for name in evaluated
    ):
        return False
    unknown = any(f"data.files.{name}" in key for key in differences.unknown for name in evaluated)
    return None if unknown else True


def _span(run: Run) -> str:
    steps = run.curves.steps
    return f"{min(steps)}–{max(steps)}"
