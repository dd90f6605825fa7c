"""Who the run is, from `run.json` (secrets are taken out when it is written)."""

from ...charts import escape, number
from ...logs.curves import Curves
from ...record.schema import FOLDER
from ...texts import text

_MAIN_PACKAGES = ("llamafactory", "transformers", "peft", "trl", "torch", "accelerate", "deepspeed", "vllm")
_SETTINGS = (
    "stage",
    "finetuning_type",
    "template",
    "cutoff_len",
    "learning_rate",
    "lr_scheduler_type",
    "warmup_ratio",
    "warmup_steps",
    "num_train_epochs",
    "max_steps",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "max_grad_norm",
    "optim",
    "lora_rank",
    "lora_alpha",
    "lora_target",
    "packing",
    "bf16",
    "fp16",
    "seed",
)


def run_name(curves: Curves) -> str:
    """The run's folder, or the folder and the file."""
    path = curves.path.resolve()
    path = path.parent if path.name == FOLDER else path
    return f"{path.parent.name}/{path.name}" if path.is_file() else path.name or str(path)


def identity_section(curves: Curves) -> str:
    """A table; "" where neither an identity nor a setting is known."""
    rows = [row for row in (*_of_run(curves.run), *_of_settings(curves)) if row[1]]
    if not rows:
        return ""
    body = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{escape(value, 400)}</td></tr>' for name, value in rows)
    return f'<table class="facts-table"><tbody>{body}</tbody></table>{_changes(curves.run)}'


def _of_run(run: dict) -> list[tuple[str, str]]:
    model, code, world, hardware = (_part(run, name) for name in ("model", "code", "world", "hardware"))
    parameters, packages = _part(model, "parameters"), _part(_part(run, "packages"), "main")
    rows, seeds = _part(_part(run, "data"), "rows"), _part(run, "seeds")
    sets = [str(_part_of(entry).get("name", "")) for entry in _list(_part(run, "data").get("datasets"))]
    gpus = [str(_part_of(gpu).get("name") or gpu) for gpu in _list(hardware.get("gpus"))]
    total, trainable = parameters.get("total"), parameters.get("trainable")
    share = trainable / total if _is_number(total) and _is_number(trainable) and total else None
    sha = str(code.get("sha") or "")
    found = [
        ("model", _join(model.get("name_or_path"), _labelled("revision", model.get("revision")), model.get("class"))),
        ("parameters", _join(_count(total), _trainable(trainable, share))),
        ("data", _join(", ".join(sets), _labelled("rows", rows.get("rows")), _labelled("tokens", rows.get("tokens")))),
        ("code", _join(sha[:12], code.get("branch"), text("page.run.dirty") if code.get("dirty") else "")),
        ("packages", ", ".join(f"{name} {packages[name]}" for name in _MAIN_PACKAGES if packages.get(name))),
        ("processes", _join(world.get("world_size"), world.get("engine"), world.get("launcher"))),
        ("global_batch", _text(world.get("global_batch"))),
        ("precision", _text(_part(run, "precision").get("compute"))),
        ("seed", _text(seeds.get("seed"))),
        (
            "hardware",
            _join(", ".join(gpus) or text("page.run.no_gpu"), hardware.get("cpu"), _gib(hardware.get("ram_gib")))
            if run
            else "",
        ),
        ("deterministic", _text(_part(run, "determinism").get("deterministic"))),
    ]
    return [(text(f"page.run.{name}"), value) for name, value in found]


def _trainable(trainable: object, share: float | None) -> str:
    if not _is_number(trainable):
        return ""
    count = _count(trainable)
    return (
        text("page.run.trainable", count=count)
        if share is None
        else text("page.run.trainable_share", count=count, share=share)
    )


def _of_settings(curves: Curves) -> list[tuple[str, str]]:
    settings = curves.settings
    shown = {name: settings.get(name) for name in _SETTINGS}
    return [(name, _text(value)) for name, value in shown.items() if value not in (None, "", -1, False)]


def _changes(run: dict) -> str:
    """What a later start of training changed."""
    out, nothing = [], text("page.run.nothing")
    for segment in map(_part_of, _list(run.get("segments"))):
        lines = "".join(
            f"<li><code>{escape(change.get('key'))}</code>: {escape(_text(change.get('a')) or nothing, 200)} → "
            f"{escape(_text(change.get('b')) or nothing, 200)}</li>"
            for change in map(_part_of, _list(segment.get("changed")))
            if not str(change.get("key", "")).startswith("config.resolved.")
        )
        if lines:
            start = escape(text("page.run.changed", start=segment.get("segment"), step=segment.get("from_step")))
            out.append(f'<details open><summary>{start}</summary><ul class="plain">{lines}</ul></details>')
    return "".join(out)


def _part(node: dict, key: str) -> dict:
    return _part_of(node.get(key))


def _part_of(value: object) -> dict:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list:
    return value if isinstance(value, list) else []


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return number(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _count(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else ""


def _gib(value: object) -> str:
    return text("page.run.ram", gib=number(value)) if _is_number(value) else ""


def _labelled(name: str, value: object) -> str:
    shown = f"{value:,}" if isinstance(value, int) else _text(value)
    return text(f"page.run.{name}", value=shown) if shown else ""


def _join(*values: object) -> str:
    return " · ".join(shown for shown in map(_text, values) if shown)
