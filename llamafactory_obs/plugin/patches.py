"""What is changed in LlamaFactory, and only there: reading the arguments, and handing callbacks to the Trainer.

`get_train_args` loses our two keys and leaves a `Plan` behind; the workflow (`run_sft` and the like) that is then
called with the same training arguments gets the plan's callbacks. Without our keys every call passes through untouched.
"""

import functools
import inspect
import os
import sys
from dataclasses import dataclass, field

from ..errors import ConfigError
from ..settings import Settings
from . import config, tracker_project
from .entries import INJECTED, parse_entries


@dataclass
class Plan:
    """What one training launch asked for."""

    given: dict
    callbacks: list
    names: list[str]
    settings: Settings
    arguments: dict = field(default_factory=dict)  # LlamaFactory's parsed argument objects, by name
    hidden: set[str] = field(default_factory=set)  # what came from the environment: perhaps a secret

    def belongs_to(self, training_args) -> bool:
        return self.arguments["training_args"] is training_args


_plan: Plan | None = None


def check(args: dict | list[str]) -> None:
    """Check our keys in a run's arguments; on a fault one line on stderr and exit code 2, before any model loads."""
    with _exit_2_on_config_error():
        _, ours = config.split(args)
        Settings.parse(ours.get("obs"))
        parse_entries(ours.get("callbacks"))


def patch_parser(module) -> None:
    """`llamafactory.hparams.parser`: read JSON configs, take our keys out of the training arguments."""
    read_args, get_ray_args, get_train_args = module.read_args, module.get_ray_args, module.get_train_args

    @functools.wraps(read_args)
    def read(args=None):
        if args is None and len(sys.argv) > 1 and sys.argv[1].endswith(".json"):
            with _exit_2_on_config_error():
                given = config.read_json_config(sys.argv[1])
            overrides = module.OmegaConf.from_cli(sys.argv[2:])
            return module.OmegaConf.to_container(module.OmegaConf.merge(module.OmegaConf.create(given), overrides))
        return read_args(args)

    @functools.wraps(get_ray_args)
    def ray_args(args=None):
        args = read(args)
        check(args)  # the first thing that LlamaFactory calls, on the Ray driver too
        rest, _ = config.split(args)
        return get_ray_args(rest)

    @functools.wraps(get_train_args)
    def train_args(args=None):
        global _plan
        args = read(args)
        with _exit_2_on_config_error():
            rest, ours = config.split(args)
            settings, entries = Settings.parse(ours.get("obs")), parse_entries(ours.get("callbacks"))
        parsed = get_train_args(rest)
        _plan = None
        _, _, training_args, finetuning_args, _ = parsed
        tracker_project.apply(settings.tracker_project, config.as_mapping(rest), training_args, finetuning_args)
        if ours:
            names = ("model_args", "data_args", "training_args", "finetuning_args", "generating_args")
            arguments = dict(zip(names, parsed, strict=True))
            with _exit_2_on_config_error():
                check_early_stopping(entries, arguments["training_args"])
                callbacks = [entry.build({name: arguments[name] for name in INJECTED}) for entry in entries]
            names = [entry.name for entry in entries]
            hidden = {value for entry in entries for value in entry.hidden}
            given = config.as_mapping(args) | ours  # as mappings: a secret is known by its key
            _plan = Plan(given, callbacks, names, settings, arguments, hidden)
        return parsed

    def without_ours(get_args):
        @functools.wraps(get_args)
        def get(args=None):
            return get_args(config.split(read(args))[0])

        return get

    module.read_args, module.get_ray_args, module.get_train_args = read, ray_args, train_args
    module.get_infer_args = without_ours(module.get_infer_args)  # one YAML may serve training, chat and export
    module.get_eval_args = without_ours(module.get_eval_args)


def check_early_stopping(entries: list, training_args) -> None:
    """transformers' EarlyStoppingCallback asserts this only when training begins."""
    for entry in entries:
        if entry.name == "early_stopping" and training_args.metric_for_best_model is None:
            raise ConfigError(
                f"{entry.where}: early_stopping needs `metric_for_best_model` (for instance eval_loss),"
                " `load_best_model_at_end: true` and an evaluation"
            )


def patch_workflow(module) -> None:
    """`llamafactory.train.<stage>.workflow`: the `run_<stage>` functions get the plan's callbacks."""
    for name, function in vars(module).copy().items():
        if name.startswith("run_") and inspect.isfunction(function) and function.__module__ == module.__name__:
            setattr(module, name, _with_callbacks(function))


def patch_launcher(module) -> None:
    """`llamafactory.launcher`: check before torchrun starts its workers, which could only exit with 1."""
    _check_before(module, lambda args, given: check(args))


def patch_v1_launcher(module) -> None:
    """`llamafactory.v1.launcher` (USE_V1=1): another trainer with another callback class; refused when we are asked."""

    def refuse(args, given: dict) -> None:
        if given:
            with _exit_2_on_config_error():
                raise ConfigError(
                    f"USE_V1=1: `{'`, `'.join(given)}` cannot work with LlamaFactory's v1 trainer, whose callbacks are"
                    " of another kind; unset USE_V1 or remove the keys"
                )

    _check_before(module, refuse)


def _check_before(module, act) -> None:
    launch = module.launch

    @functools.wraps(launch)
    def wrapped():
        if len(sys.argv) > 2 and sys.argv[1] in ("train", "sft"):
            with _exit_2_on_config_error():
                sys.argv[2:] = [config.without_blanks(word) for word in sys.argv[2:]]
            args = _read_quietly(sys.argv[2:])
            if args is not None:
                with _exit_2_on_config_error():
                    _, given = config.split(args)
                act(args, given)
        return launch()

    module.launch = wrapped


def _read_quietly(words: list[str]) -> dict | list[str] | None:
    """The arguments of a `train` command, or None where LlamaFactory itself will complain about them."""
    if not words[0].endswith((".yaml", ".yml", ".json")):
        return words
    from omegaconf import OmegaConf

    try:
        given = OmegaConf.create(config.read_json_config(words[0])) if words[0].endswith(".json") else None
        given = OmegaConf.load(words[0]) if given is None else given
        return OmegaConf.to_container(OmegaConf.merge(given, OmegaConf.from_cli(words[1:])))
    except Exception:
        return None


def _with_callbacks(function):
    signature = inspect.signature(function)

    @functools.wraps(function)
    def run(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        plan = _plan
        if plan is None or not plan.callbacks or not plan.belongs_to(bound.arguments.get("training_args")):
            return function(*args, **kwargs)
        from ..callbacks.attach import attach, watching

        callbacks, recorder = attach(plan)
        bound.arguments["callbacks"] = [*(bound.arguments.get("callbacks") or []), *callbacks]
        with watching(plan, recorder):
            return function(*bound.args, **bound.kwargs)

    return run


class _exit_2_on_config_error:
    """Turns a ConfigError into one line on stderr (rank 0 of each node only) and exit code 2."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if isinstance(error, ConfigError):
            if os.environ.get("LOCAL_RANK", "0") == "0":
                print(f"llamafactory-obs: {error}", file=sys.stderr, flush=True)
            sys.exit(2)
