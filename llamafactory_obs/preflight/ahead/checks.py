"""All checks on what would fail later."""

from collections.abc import Callable

from ... import texts
from ..result import FAIL, PASS, Check
from ..run_config import RunConfig, parsed
from .adapter import check_adapter
from .disk import check_disk
from .effective import Effective
from .evaluation import check_evaluation
from .guarded import guarded
from .log_interval import check_logging
from .output_dir import check_output_dir
from .saves import check_saves
from .template import check_saved_template
from .tracker import check_tracker
from .watched import check_watched
from .workers import check_workers


def ahead_checks(config: RunConfig, *, endpoint: str | None = None, train_rows: int | None = None) -> list[Check]:
    """Judge what a run config leads to later.

    Args:
        config: see `run_config.read_run_config`.
        endpoint: the vLLM server that the preflight was given, None for none.
        train_rows: rows of the training split after LlamaFactory's preprocessing, as the mask gate counts them; None:
            how many steps the run has is then known with `max_steps` only.

    Raises:
        ConfigError: LlamaFactory refuses the config.
    """
    with parsed(config) as arguments:
        run = Effective(config, arguments, train_rows)
        groups: dict[str, Callable[[], list[Check]]] = {
            "do_train": lambda: [_do_train(run)],
            "obs_loaded": lambda: check_watched(run),
            "output_dir": lambda: check_output_dir(run),
            "save_steps": lambda: check_saves(run),
            "adapter_served": lambda: check_adapter(run, endpoint),
            "eval_set": lambda: check_evaluation(run),
            "tracker": lambda: check_tracker(run),
            "disk": lambda: check_disk(run),
            "logging_steps": lambda: check_logging(run),
            "workers": lambda: check_workers(run),
            "saved_template": lambda: check_saved_template(run),
        }
        return [check for name, judge in groups.items() for check in guarded(name, judge)]


def _do_train(run: Effective) -> Check:
    if run.get("do_train"):
        return Check("do_train", PASS, True, True, "do_train: true")
    text = texts.text("ahead.train.not_true")
    return Check("do_train", FAIL, False, True, text, texts.text("ahead.train.set"))
