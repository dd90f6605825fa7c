"""Do data, template, base model and batch agree with the run that is resumed? By content where there are hashes."""

import importlib
from dataclasses import dataclass, field
from pathlib import Path

from ..identity.data import data_identity, file_job, template_sha256
from ..identity.files import hub_blob_sha256, sha256_file
from ..identity.model import find_folder
from ..identity.unknown import Unknowns
from ..preflight.ahead.effective import Effective
from ..preflight.ahead.resume_changes import DATA, MODEL, SCALE, Changes
from .point import GRAVE, INFO, WARN, Point

#: weights up to this size are read; of larger ones names and sizes are compared
READ_BYTES = 2 << 30


@dataclass
class Agreement:
    """What agrees, differs, or cannot be known.

    Attributes:
        same: `data | template | model | lora | batch | processes | seed | optimizer`, in this order.
        points: what differs or is not known.
    """

    same: list[str] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)


def agreement(run: Effective, record: dict, changes: Changes, data_args: object) -> Agreement:
    """Compare by content, and sum up what the compared keys say.

    Args:
        record: `run.json` of the run that is resumed; {} where there is none.
        changes: of `find_changes`; its points are said elsewhere.
        data_args: LlamaFactory's data arguments of this config.
    """
    found = Agreement()
    if not record:
        found.points.append(Point("agree.no_record", WARN))
        return found
    content = [*_data(record, data_args), *_template(run, record), *_model(run, record)]
    found.points = [point for point in content if point is not None]
    differ = {point.values.get("what") for point in found.points}
    keys = {
        "data": (*(key for key in DATA if key != "template"),),
        "template": ("template",),
        "model": ("model_name_or_path", "finetuning_type"),
        "adapter": (*(key for key in MODEL if key.startswith(("lora", "use_dora", "additional"))), *SCALE),
        "batch": ("per_device_train_batch_size", "gradient_accumulation_steps"),
        "processes": ("processes",),
        "seed": ("seed", "data_seed"),
        "optimizer": ("optim",),
    }
    for what, of in keys.items():
        if what == "adapter" and run.get("finetuning_type") != "lora":
            continue
        if what not in differ and not set(of) & set(changes):
            found.same.append(what)
    return found


def _data(record: dict, data_args: object) -> list[Point]:
    """Each training set's entry and files."""
    before = record.get("data") or {}
    files, entries = before.get("files"), before.get("datasets") or []
    trained = {one.get("name"): one for one in entries if isinstance(one, dict) and one.get("role") == "train"}
    if not trained:
        return [_unknown("data", "run.json")]
    now = data_identity(data_args, Unknowns())
    rows = [row for row in now["datasets"] if row["role"] == "train" and row["name"] in trained]
    hashes = file_job(data_args, rows)()
    points = []
    for row in rows:
        name, old = row["name"], trained[row["name"]]
        then = (files or {}).get(name) or {}
        if row.get("entry_sha256") and old.get("entry_sha256") != row["entry_sha256"]:
            points.append(Point("agree.entry", GRAVE, {"what": "data", "name": name}))
        if not then.get("sha256") or not hashes[name].get("sha256"):
            points.append(_unknown("data", name))
        elif then["sha256"] != hashes[name]["sha256"]:
            points.append(Point("agree.data", GRAVE, {"what": "data", "name": name}))
    return points


def _template(run: Effective, record: dict) -> list[Point]:
    then, name = (record.get("data") or {}).get("template_sha256"), run.get("template")
    if (record.get("data") or {}).get("settings", {}).get("template") != name:
        return []  # another name is a changed key
    importlib.import_module("llamafactory.data.template")
    now = template_sha256(name)
    if not then or not now:
        return [_unknown("template", str(name))] if name else []
    return [] if then == now else [Point("agree.template", GRAVE, {"what": "template", "name": name})]


def _model(run: Effective, record: dict) -> list[Point]:
    """Config and weights of the base model: small weights by content, large ones by names and sizes."""
    before = record.get("model") or {}
    name = str(run.get("model_name_or_path"))
    folder = find_folder(name, run.get("model_revision"), None, run.get("cache_dir"))
    if folder is None:
        return [_unknown("model", name)]
    then, config = (before.get("weights") or {}).get("files"), before.get("config_sha256")
    if config and (folder / "config.json").is_file() and sha256_file(folder / "config.json") != config:
        return [Point("agree.model", GRAVE, {"what": "model", "name": name, "file": "config.json"})]
    if not isinstance(then, list):
        return [_unknown("model", name)]
    read = sum(one.get("bytes") or 0 for one in then) <= READ_BYTES
    for one in then:
        if _differs(folder / str(one.get("file")), one, read):
            return [Point("agree.model", GRAVE, {"what": "model", "name": name, "file": one.get("file")})]
    return [] if read else [Point("agree.sizes_only", INFO, {"name": name})]


def _differs(file: Path, recorded: dict, read: bool) -> bool:
    try:
        if file.stat().st_size != recorded.get("bytes"):
            return True
        known = hub_blob_sha256(file) or (sha256_file(file) if read else None)
    except OSError:
        return True
    return known is not None and known != recorded.get("sha256")


def _unknown(what: str, name: str) -> Point:
    return Point("agree.unknown", WARN, {"what": what, "name": name})
