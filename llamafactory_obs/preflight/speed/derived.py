"""From a run config to that of the measuring run: what makes a step slow or fast stays; what leaves traces goes."""

from pathlib import Path

from ...plugin.registry import OWN, known_names, resolve
from ...texts import text
from ..rehearsal.derive import ALONE, GONE, Derived, limits, name_of, replaced
from ..run_config import RunConfig

_MEASURE = "llamafactory_obs.preflight.speed.callback.MeasureSpeed"
#: the Trainer's own rhythm is off: the plan says when it logs, evaluates and saves
_RHYTHM = {
    "max_steps": 1_000_000,
    "logging_strategy": "no",
    "logging_first_step": GONE,
    "eval_strategy": "no",
    "evaluation_strategy": GONE,
    "eval_on_start": GONE,
    "save_strategy": "no",
    "do_eval": False,
    "do_predict": False,
    "load_best_model_at_end": False,
    "metric_for_best_model": GONE,
    "greater_is_better": GONE,
    "early_stopping_steps": GONE,
}
#: trackers that only write files
_LOCAL = ("tensorboard",)
#: ours that would start processes of their own, or end the training
_NOT_HERE = ("probe", "early_stopping")


def derive(
    config: RunConfig, output_dir: Path, options: dict, every_callback: bool
) -> tuple[Derived, list[str], list[str]]:
    """The config of the measuring run.

    Args:
        config: of the real run.
        output_dir: of the measuring run.
        options: of `callback.MeasureSpeed`.
        every_callback: those that are not ours take part too.

    Returns:
        The config, the names of the user's callbacks that take part, and what that leaves out, for people.
    """
    trackers, told = _trackers(config)
    changes = {**_RHYTHM, **ALONE, "include_effective_tokens_per_second": GONE}
    changes |= {"report_to": trackers, "output_dir": str(output_dir)}
    if not _is_tokenized(config.given.get("tokenized_path")):
        changes["tokenized_path"] = GONE  # LlamaFactory would write it
    if config.given.get("cache_dir"):
        changes["cache_dir"] = GONE  # data sets are cached there too; `rehearsal.child.environment` names the model's
    given, changed = replaced(config.given, changes)
    kept = [entry for entry in config.callbacks if _takes_part(name_of(entry), every_callback)]
    names = [name_of(entry) for entry in kept]
    left_out = [name for name in map(name_of, config.callbacks) if name not in names]
    for name in left_out:
        if name not in known_names() and "." not in name:
            resolve(name, "callbacks")  # says that nobody knows it
    told += [_why_not(name) for name in left_out]
    given["obs"] = limits(config.settings)
    own = [] if "throughput" in names else ["throughput"]
    given["callbacks"] = [*kept, *own, {_MEASURE: options}]
    return Derived(given, changed, left_out), names, told


def _trackers(config: RunConfig) -> tuple[str | list[str], list[str]]:
    """What the measuring run reports to, and what it does not."""
    wanted = config.given.get("report_to") or []
    wanted = [str(one).strip() for one in (wanted if isinstance(wanted, list) else str(wanted).split(","))]
    local = [name for name in wanted if name in _LOCAL]
    remote = [name for name in wanted if name not in (*_LOCAL, "none", "")]
    if config.given.get("use_swanlab"):
        remote.append("swanlab")
    limits = [text("speed.derived.remote", names=", ".join(dict.fromkeys(remote)))] if remote else []
    return local or "none", limits


def _is_tokenized(path: object) -> bool:
    return isinstance(path, str) and Path(path).is_dir() and any(Path(path).iterdir())


def _takes_part(name: str, every: bool) -> bool:
    return name not in _NOT_HERE and (every or name in OWN)


def _why_not(name: str) -> str:
    if name in _NOT_HERE:
        return text("speed.derived.left_out", name=name)
    return text("speed.derived.not_ours", name=name)
