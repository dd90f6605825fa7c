"""A name for a run that says what it is and what changed since the last one: `qwen3-4b-lora-r32-lr2e-4`."""

import json
import re
from pathlib import Path

from ...identity.redact import is_secret_key
from ...identity.run_name import LONGEST, MOST, SHORT, slug, value_name
from ...record.schema import FOLDER, RUN
from ..rehearsal.folder import MARKER
from ..run_config import RunConfig
from .effective import UNNAMED

#: keys that say where and how the run is stored, shown or watched, not what it learns
_LOGISTICS = re.compile(
    r"output_dir|overwrite_.*|resume_from_checkpoint|run_name|report_to|project|logging_.*|save_.*|eval_(?!dataset).*|"
    r"per_device_eval_.*|plot_loss|callbacks|obs|do_.*|dataset_dir|tokenized_path|.*num_workers|ddp_.*|disable_tqdm|"
    r"include_.*|swanlab_.*|use_swanlab|trackio_.*|hub_.*|push_to_hub|trust_remote_code|cache_dir|ray_.*|stage|"
    r"model_name_or_path|finetuning_type|load_best_model_at_end|metric_for_best_model|skip_.*"
)
#: where there is nothing to compare with
_DEFINING = ("lora_rank", "learning_rate")
_SIZE = re.compile(r"\d+(\.\d+)?[bm]")


def last_run(config: RunConfig) -> dict | None:
    """The run before this one: the newest record in `output_dir`, its archive, or a folder beside it.

    Returns:
        `{"name": its folder, "given": its config, "started": Unix seconds}`; None where there is no record.
    """
    output = Path(str(config.given.get("output_dir") or UNNAMED))
    parent = output.parent
    files = [*output.glob(f"{FOLDER}/{RUN}"), *parent.glob(f"*/{FOLDER}/{RUN}")]
    files += [*output.glob(f"{FOLDER}/archive/*/{RUN}"), *parent.glob(f"*/{FOLDER}/archive/*/{RUN}")]
    runs = [run for run in map(_read, dict.fromkeys(files)) if run is not None]  # smoke runs are none
    return max(runs, key=lambda run: (run["started"], run["name"]), default=None)


def suggested_run_name(config: RunConfig, last: dict | None) -> str:
    """A name for a run.

    Args:
        config: the run's.
        last: of `last_run`; None where there was none.

    Returns:
        Lower-case ASCII letters, digits, `.`, `-`, at most `LONGEST`: model, method, and what differs from the last
        run (the rank and the learning rate where there was none). The same input gives the same name.
    """
    given, before = config.given, (last or {}).get("given") or {}
    changed = [key for key in _ordered({*given, *before}) if given.get(key) != before.get(key)]
    if last is None:
        changed = [key for key in _DEFINING if given.get(key) is not None]
    parts = [_model(given.get("model_name_or_path")), slug(given.get("finetuning_type") or "lora")]
    parts += [value_name(key, given.get(key)) for key in changed[:MOST]]
    if last is not None and not changed:
        parts.append("again")
    parts = [part for part in parts if part]
    while len(parts) > 1 and len("-".join(parts)) > LONGEST:
        parts.pop()
    return "-".join(parts)[:LONGEST].strip("-.")


def _read(file: Path) -> dict | None:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        given = (record.get("config") or {}).get("given")
        started = max([row["started"] for row in record.get("segments") or []], default=file.stat().st_mtime)
    except (OSError, ValueError, AttributeError, TypeError, LookupError):
        return None
    folder = file.parent.parent.parent.parent if file.parent.parent.name == "archive" else file.parent.parent
    if (folder / MARKER).exists():
        return None
    return {"name": folder.name, "given": given, "started": float(started)} if isinstance(given, dict) else None


def _ordered(keys: set[str]) -> list[str]:
    known = list(SHORT)
    told = [key for key in keys if not _LOGISTICS.fullmatch(key) and not is_secret_key(key)]
    return sorted(told, key=lambda key: (known.index(key) if key in known else len(known), key))


def _model(name: object) -> str:
    """`Qwen/Qwen3-4B-Instruct-2507` is qwen3-4b: up to its size, else the first three words."""
    words = slug(Path(str(name or "model")).name).split("-")
    size = next((i for i, word in enumerate(words) if _SIZE.fullmatch(word)), 2)
    return "-".join(words[: size + 1])
