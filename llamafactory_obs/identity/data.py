"""The data of a LlamaFactory run: which datasets, from which files, through which template and settings."""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from .files import hash_files, sha256_file, sha256_json, sha256_text
from .redact import redact
from .unknown import Unknowns, unknown

SETTINGS = (
    "template cutoff_len max_samples val_size packing neat_packing mask_history train_on_prompt mix_strategy "
    "interleave_probs streaming buffer_size tool_format default_system enable_thinking preserve_thinking "
    "ignore_pad_token_for_loss eval_on_each_dataset tokenized_path overwrite_cache preprocessing_batch_size"
)
"""The data arguments that decide which rows come out, by their LlamaFactory names."""

HUBS = {"hf_hub_url": "hf_hub", "ms_hub_url": "ms_hub", "om_hub_url": "om_hub"}


def data_identity(args: object, unknown_: Unknowns) -> dict:
    """What the data arguments say; reads `dataset_info.json`, no data file.

    Returns:
        `{"settings": {...}, "datasets": [{"name", "role": "train|eval", "source": "file|script|cloud|hf_hub|ms_hub|
        om_hub", "location", "entry"}], "info_sha256", "template_sha256", "files": None, "rows": None}`; the last two
        are filled by the slow jobs.
    """
    result: dict = {"settings": {}, "datasets": [], "info_sha256": None, "template_sha256": None}
    if args is None:
        unknown_.add("data", "no LlamaFactory data arguments: which files the rows came from is not known")
        return result
    names = SETTINGS.split()
    result["settings"] = redact({name: getattr(args, name, None) for name in names})
    info = unknown_.guard("data.info_sha256", lambda: _info(args, unknown_))
    if info is not None and not isinstance(getattr(args, "dataset_dir", None), dict):
        path = Path(str(args.dataset_dir)) / "dataset_info.json"
        result["info_sha256"] = unknown_.guard("data.info_sha256", lambda: sha256_file(path))
    for role, field in (("train", "dataset"), ("eval", "eval_dataset")):
        for name in _listed(getattr(args, field, None)):
            row = unknown_.guard(f"data.datasets.{name}", lambda name=name: _describe(name, info))
            result["datasets"].append({"name": name, "role": role, **(row or {"source": None})})
    result["template_sha256"] = unknown_.guard("data.template_sha256", lambda: template_sha256(args.template))
    if result["template_sha256"] is None:
        unknown_.add("data.template_sha256", "LlamaFactory's template is not loaded in this process")
    if getattr(args, "tokenized_path", None):
        why = "with tokenized_path, rows tokenized earlier may be used: trust data.rows, not the files"
        unknown_.add("data.files_used", why)
    return result


def file_job(args: object, datasets: list[dict]) -> Callable[[], dict]:
    """A job that hashes the files of all datasets.

    Its value: `{name: {"sha256", "files": [{"file", "bytes", "sha256", "source"}]}}`, with `{"unknown": why}` for a
    dataset whose content cannot be known (on a hub, gone, unreadable).
    """
    folder = getattr(args, "dataset_dir", None)
    base = Path(folder) if isinstance(folder, str) else Path(".")

    def job() -> dict:
        return {row["name"]: _hash_dataset(row, base) for row in datasets}

    return job


def template_sha256(name: str | None) -> str | None:
    """The content of LlamaFactory's template of that name as this process uses it (its fields, slots, stop words).

    Two versions of LlamaFactory may hold different templates under one name. None where it is not loaded.
    """
    templates = getattr(sys.modules.get("llamafactory.data.template"), "TEMPLATES", None)
    if not name or not templates or name not in templates:
        return None
    return sha256_text(re.sub(r" at 0x[0-9a-f]+", "", repr(templates[name])))


def _info(args: object, unknown_: Unknowns) -> dict | None:
    """The content of dataset_info.json; None where names are hub names or the file lies on a hub."""
    folder = getattr(args, "dataset_dir", None)
    if isinstance(folder, dict):
        return folder
    if folder is None or folder == "ONLINE":
        return None
    if str(folder).startswith("REMOTE:"):
        unknown_.add("data.info_sha256", "dataset_info.json lies on the hub")
        return None
    return json.loads((Path(folder) / "dataset_info.json").read_text(encoding="utf-8"))


def _describe(name: str, info: dict | None) -> dict:
    """Where a dataset comes from, chosen as LlamaFactory's `get_dataset_list` chooses."""
    modelscope, openmind = (_on(f"USE_{hub}_HUB") for hub in ("MODELSCOPE", "OPENMIND"))
    if info is None:
        source = "ms_hub" if modelscope else "om_hub" if openmind else "hf_hub"
        return {"source": source, "location": name, "entry": None}
    if name not in info:
        raise KeyError(f"{name} is not in dataset_info.json")
    entry = info[name]
    shown = {"entry": redact(entry), "entry_sha256": sha256_json(entry)}
    has_hf = "hf_hub_url" in entry
    for key, use in (("ms_hub_url", modelscope), ("om_hub_url", openmind), ("hf_hub_url", True)):
        if key in entry and (use or not has_hf):
            return {"source": HUBS[key], "location": entry[key], **shown}
    for key, source in (("script_url", "script"), ("cloud_file_name", "cloud"), ("file_name", "file")):
        if key in entry:
            return {"source": source, "location": redact(entry[key]), **shown}
    raise KeyError(f"the entry of {name} names no file and no hub")


def _hash_dataset(row: dict, base: Path) -> dict:
    source, location = row.get("source"), row.get("location")
    if source in HUBS.values():
        return unknown(f"{location} on {source}: the hub's revision was not recorded by the loader")
    if source == "cloud":
        return unknown("a cloud file: its content is not read a second time")
    if source is None:
        return unknown("where the dataset comes from is not known")
    path = base / str(location)
    try:
        if path.is_dir():
            return hash_files(path, [one.name for one in path.iterdir() if one.is_file()])
        result = hash_files(path.parent, [path.name])
    except OSError as error:
        return unknown(f"{path.name}: {error.strerror}")
    if source == "script":
        result["note"] = "the hash of the loading script, not of the data that it loads"
    columns = (row.get("entry") or {}).get("columns") or {}
    media = sorted({"images", "videos", "audios"} & set(columns))
    if media:
        result["note"] = f"the files named in {', '.join(media)} are not hashed"
    return result


def _on(variable: str) -> bool:
    return os.environ.get(variable, "0").lower() in ("true", "y", "1")


def _listed(value: object) -> list[str]:
    if value is None:
        return []
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else [str(one) for one in value]
