"""`obs: {tracker: {project: NAME}}`: the project that each tracker reads when it starts.

Set after the arguments are parsed, in each process, and only where the user has not said it in the tracker's own way.
(transformers 5.6.0, `integrations/integration_utils.py`; LlamaFactory 0.9.5, `get_swanlab_callback` and
`ReporterCallback`, which puts WANDB_PROJECT=llamafactory into the environment where it is not set.)
"""

import os

#: name under `report_to:` -> the environment variable with its project
VARIABLES = {
    "wandb": "WANDB_PROJECT",
    "swanlab": "SWANLAB_PROJECT",
    "mlflow": "MLFLOW_EXPERIMENT_NAME",
    "comet_ml": "COMET_PROJECT_NAME",
    "clearml": "CLEARML_PROJECT",
}
#: trackers whose project is an argument: name -> the YAML key
ARGUMENTS = {"trackio": "project", "use_swanlab": "swanlab_project"}

#: LlamaFactory's own default for wandb and swanlab; in the environment it may be left from an earlier run
LLAMAFACTORYS = "llamafactory"

#: what this module has put into the environment: not the user's, so the next run in this process may change it
_ours: dict[str, str] = {}


def said(name: str) -> str | None:
    """The project of a tracker (a key of `VARIABLES`) that the user has put into the environment; None for none."""
    value = os.environ.get(VARIABLES[name])
    return value if value and value != LLAMAFACTORYS else None


def apply(project: str | None, given: dict, training_args, finetuning_args) -> None:
    """Make a project the one of the run's trackers.

    Args:
        project: None takes back what an earlier run in this process has set.
        given: LlamaFactory's keys as the user gave them.
        training_args, finetuning_args: LlamaFactory's parsed arguments; `project` and `swanlab_project` are set there.
    """
    for variable, value in _ours.items():
        if os.environ.get(variable) == value:
            del os.environ[variable]
    _ours.clear()
    if project is None:
        return
    for name in training_args.report_to or []:
        if name in VARIABLES and said(name) is None:
            os.environ[VARIABLES[name]] = _ours[VARIABLES[name]] = project
    if not given.get(ARGUMENTS["trackio"]):
        training_args.project = project
    if not given.get(ARGUMENTS["use_swanlab"]):
        finetuning_args.swanlab_project = project
