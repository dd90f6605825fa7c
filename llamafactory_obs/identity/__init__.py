"""The run's identity for `run.json`: code, packages, data, model, config, seeds, precision, hardware, determinism.

    identity, jobs = collect(training_args, given_config=yaml, model_args=..., model=model, ...)   # under 0.5 s
    for field, job in jobs:                       # hashes of big files: on another thread
        patch(identity, field, job())
    difference(identity, other)                   # [{"key": "seeds.data_seed", "a": 1, "b": 2}]

What cannot be known stands in `unknown` as `{"what", "why"}`. Nothing here raises, draws a random number, starts CUDA
or imports torch, transformers or llamafactory: they are asked only where they are loaded already.
"""

import dataclasses
import os
from collections.abc import Callable

from . import code, data, hardware, model, packages, rows, settings
from .brief import brief
from .difference import difference, statement
from .redact import redact
from .unknown import Unknowns, is_unknown

__all__ = ["brief", "collect", "difference", "patch", "redact", "statement"]

Job = tuple[str, Callable[[], object]]
"""A dotted field of the identity and the function that computes its value; it never raises."""

PENDING = "not hashed yet"
GENERIC_ROWS_BUDGET_S = 0.25


def collect(
    training_args: object,
    *,
    given_config: dict | None = None,
    model_args: object = None,
    data_args: object = None,
    finetuning_args: object = None,
    generating_args: object = None,
    model: object = None,
    tokenizer: object = None,
    train_dataset: object = None,
    cwd: str | os.PathLike | None = None,
) -> tuple[dict, list[Job]]:
    """Describe a run that is about to train.

    Everything but `training_args` may be None (a plain HF Trainer): then `unknown` says what is missing.

    Args:
        given_config: the config as the user wrote it, before defaults.
        cwd: the folder whose git repository is the code; None for the current directory.

    Returns:
        `(identity, jobs)`. The identity has the keys `code, packages, data, model, config {given, resolved}, seeds,
        precision, hardware, world, determinism, unknown` and holds plain JSON values without secrets. A field that a
        job will fill is None and named in `unknown` until `patch` puts the value there.
    """
    unknown = Unknowns()
    jobs: list[Job] = []
    groups = {
        "model_args": model_args,
        "data_args": data_args,
        "training_args": training_args,
        "finetuning_args": finetuning_args,
        "generating_args": generating_args,
    }
    world = unknown.guard("world", lambda: settings.world(training_args, unknown), {})
    size = (world or {}).get("world_size")
    identity = {
        "code": unknown.guard("code", lambda: code.code_identity(cwd, unknown), {}),
        "packages": unknown.guard("packages", lambda: packages.package_identity(unknown), {}),
        "data": unknown.guard("data", lambda: _data(data_args, train_dataset, unknown, jobs), {}),
        "model": unknown.guard("model", lambda: _model(model, tokenizer, model_args, unknown, jobs), {}),
        "config": {
            "given": unknown.guard("config.given", lambda: redact(given_config)),
            "resolved": {name: _resolved(name, group, unknown) for name, group in groups.items()},
        },
        "seeds": unknown.guard("seeds", lambda: settings.seeds(training_args), {}),
        "precision": unknown.guard(
            "precision", lambda: settings.precision(training_args, model_args, finetuning_args, unknown), {}
        ),
        "hardware": unknown.guard("hardware", lambda: hardware.hardware_identity(unknown), {}),
        "world": world,
        "determinism": unknown.guard("determinism", lambda: settings.determinism(training_args, model, size), {}),
    }
    if given_config is None:
        unknown.add("config.given", "the config as written was not passed on")
    if (world.get("nodes") or 1) > 1:
        unknown.add("hardware.other_nodes", "only this node's machine is described")
    for field, _ in jobs:
        unknown.add(field, PENDING)
    identity["unknown"] = unknown.rows
    return identity, [(field, _safe(job)) for field, job in jobs]


def patch(identity: dict, field: str, value: object) -> None:
    """Put a job's value into the identity: its "not hashed yet" goes, what stays unknown is named with its reason."""
    rows_ = identity.setdefault("unknown", [])
    rows_[:] = [row for row in rows_ if not (row["what"] == field and row["why"] == PENDING)]
    target = identity
    *parents, last = field.split(".")
    for name in parents:
        if not isinstance(target.get(name), dict):
            target[name] = {}
        target = target[name]
    target[last] = _without_unknown(field, value, rows_)


def _without_unknown(field: str, value: object, rows_: list[dict]) -> object:
    if is_unknown(value):
        rows_.append({"what": field, "why": value["unknown"]})
        return None
    if isinstance(value, dict):
        return {name: _without_unknown(f"{field}.{name}", one, rows_) for name, one in value.items()}
    return value


def _safe(job: Callable[[], object]) -> Callable[[], object]:
    def run() -> object:
        try:
            return job()
        except Exception as error:
            return {"unknown": f"{type(error).__name__}: {error}"}

    return run


def _data(args: object, dataset: object, unknown: Unknowns, jobs: list[Job]) -> dict:
    result = unknown.guard("data", lambda: data.data_identity(args, unknown), {})
    result.update(files=None, rows=None)
    if result.get("datasets"):
        jobs.append(("data.files", data.file_job(args, result["datasets"])))
    if unknown.guard("data.rows", lambda: dataset is not None and rows.is_arrow(dataset)):
        jobs.append(("data.rows", lambda: rows.rows_sha256(dataset)))
    else:  # runs the dataset's own code: here and now, in the thread that owns it
        value = rows.rows_sha256(dataset, budget_s=GENERIC_ROWS_BUDGET_S)
        result["rows"] = _without_unknown("data.rows", value, unknown.rows)
    return result


def _model(model_: object, tokenizer: object, args: object, unknown: Unknowns, jobs: list[Job]) -> dict:
    fields, more = model.model_identity(model_, tokenizer, args, unknown)
    jobs.extend(more)
    return fields


def _resolved(name: str, group: object, unknown: Unknowns) -> dict:
    """An argument object's public fields with their final values (LlamaFactory's own `to_dict` drops some)."""
    if group is None:
        unknown.add(f"config.resolved.{name}", "not given: this is not a LlamaFactory run or it was not passed on")
        return {}
    return unknown.guard(f"config.resolved.{name}", lambda: redact(_fields(group)), {})


def _fields(group: object) -> dict:
    if isinstance(group, dict):
        return group
    if not dataclasses.is_dataclass(group):
        return group.to_dict() if callable(getattr(group, "to_dict", None)) else vars(group)
    plain = (str, int, float, bool, type(None))
    values = {}
    for field in dataclasses.fields(group):
        value = getattr(group, field.name, None)
        derived = field.init or isinstance(value, plain) or type(value).__module__ == "torch"
        if derived and not field.name.startswith("_"):
            values[field.name] = value
    return values
