"""Where will the curves land, and under which name?"""

import contextlib
import importlib
import io

from ... import texts
from ...plugin.names import did_you_mean
from ...plugin.tracker_project import ARGUMENTS, LLAMAFACTORYS, VARIABLES, said
from ..result import FAIL, PASS, SKIPPED, WARN, Check
from .effective import Effective
from .run_name import last_run, suggested_run_name

#: projects of LlamaFactory or transformers where nobody names one; the others take their own
_DEFAULTS = {"wandb": repr(LLAMAFACTORYS), "clearml": "'HuggingFace Transformers'"}
#: where transformers' question for a package is not called by the name under `report_to:`
_AVAILABLE = {"azure_ml": "is_azureml_available", "comet_ml": "is_comet_available", "flyte": "is_flytekit_available"}
#: and where the package is not
_PACKAGE = {"azure_ml": "azureml-core", "flyte": "flytekit"}
#: LlamaFactory 0.9.5, `hparams/parser.py`
_PPO = ("wandb", "tensorboard", "trackio")
#: the integrations of transformers 5.6.0 that read `run_name`; TensorBoard's folder is named by time and machine
_NAMED = {"wandb", "trackio", "comet_ml", "mlflow", "dagshub", "swanlab"}


def trackers(run: Effective) -> list[str]:
    """What `report_to` names, `all` resolved as transformers does; `[]` for none (its default).

    transformers 5.6.0 takes `none` and `all` alone only; any other value, also an empty one, it looks up as it stands.
    """
    value = run.get("report_to")
    names = value if isinstance(value, list) else [value]
    if names == ["all"]:
        from transformers.integrations import get_available_reporting_integrations

        return get_available_reporting_integrations()
    return [] if names == ["none"] else list(names)


def check_tracker(run: Effective) -> list[Check]:
    """`tracker`, one check for each, and `run_name`."""
    names = trackers(run)
    if run.get("use_swanlab"):  # LlamaFactory then takes swanlab out of report_to
        names = [name for name in names if name != "swanlab"]
    checks = [_one(run, name) for name in names]
    if run.get("use_swanlab"):
        checks.append(_project(run, "use_swanlab", run.get("swanlab_project")))
    if not checks:
        return [
            _none(run),
            Check(
                "run_name",
                SKIPPED,
                run.get("run_name"),
                None,
                texts.text("ahead.tracker.none", suggestion=_suggestion(run)),
            ),
        ]
    if not run.get("use_swanlab") and not _NAMED & {str(name) for name in names}:
        text = texts.text("ahead.tracker.no_run_name", names=", ".join(map(str, names)), suggestion=_suggestion(run))
        return [*checks, Check("run_name", SKIPPED, run.get("run_name"), None, text)]
    return [*checks, _name(run, names)]


def _none(run: Effective) -> Check:
    what = "report_to: none" if run.given("report_to") else texts.text("ahead.tracker.not_set")
    if run.config.callbacks:
        return Check("tracker", PASS, "none", None, texts.text("ahead.tracker.kept", what=what))
    text = texts.text("ahead.tracker.log_only", what=what)
    return Check("tracker", WARN, "none", None, text, texts.text("ahead.tracker.cure"))


def _one(run: Effective, name: str) -> Check:
    refused = _refused(run, name)
    if refused is not None:
        return refused
    if name == "swanlab":
        return _swanlab(run)
    if name in VARIABLES:
        return _project(run, name, said(name))
    if name in ARGUMENTS:
        return _project(run, name, run.get(ARGUMENTS[name]))
    return Check("tracker", PASS, name, None, f"report_to: {name}")


def _refused(run: Effective, name: object) -> Check | None:
    """A name that the Trainer does not know, a package that is not here, a stage that takes few; None for none."""
    from transformers import integrations
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    if not isinstance(name, str) or name not in INTEGRATION_TO_CALLBACK:
        known = sorted(INTEGRATION_TO_CALLBACK)
        hint = did_you_mean(str(name).lower(), known)
        text = texts.text("ahead.tracker.unknown", name=name, hint=hint)
        return Check("tracker", FAIL, name, known, text, texts.text("ahead.tracker.known"))
    if run.get("stage") == "ppo" and name not in _PPO:
        text = texts.text("ahead.tracker.ppo", name=name)
        return Check("tracker", FAIL, name, list(_PPO), text, f"report_to: one of {', '.join(_PPO)}")
    available = getattr(integrations, _AVAILABLE.get(name, f"is_{name}_available"))
    if name != "swanlab" and not available():
        text = texts.text("ahead.tracker.not_installed", name=name)
        return Check("tracker", FAIL, name, None, text, f"pip install {_PACKAGE.get(name, name)}, or another report_to")
    return None


def _project(run: Effective, name: str, now: str | None) -> Check:
    own = ARGUMENTS.get(name)
    label = "swanlab" if name == "use_swanlab" else name
    named = run.given(own) if own else bool(now)
    where = own or VARIABLES[name]
    ours = run.config.settings.tracker_project
    if named:
        also = texts.text("ahead.tracker.gives_way", ours=ours) if ours and ours != now else ""
        return Check(
            "tracker",
            PASS,
            now,
            None,
            texts.text("ahead.tracker.project", label=label, project=now, where=where, also=also),
        )
    if ours:
        return Check("tracker", PASS, ours, None, texts.text("ahead.tracker.ours", label=label, ours=ours))
    lands = repr(now) if now else _DEFAULTS.get(name, texts.text("ahead.tracker.default"))
    text = texts.text("ahead.tracker.nameless", label=label, lands=lands)
    set_it = f"{own}: NAME" if own else f"export {where}=NAME"
    return Check("tracker", WARN, now, "a project of yours", text, f"obs: {{tracker: {{project: NAME}}}}, or {set_it}")


def _swanlab(run: Effective) -> Check:
    """transformers' integration asks `swanlab.get_run()` before there is a run; newer swanlab raises there."""
    fix = texts.text("ahead.tracker.own_way")
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            importlib.import_module("swanlab").get_run()
    except ImportError as error:
        text = texts.text("ahead.tracker.no_import", error=error)
        return Check("tracker", FAIL, "swanlab", None, text, f"pip install swanlab; {fix}")
    except Exception as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        text = texts.text("ahead.tracker.raises", why=why)
        return Check("tracker", FAIL, "swanlab", "use_swanlab", text, fix)
    return _project(run, "swanlab", said("swanlab"))


def _name(run: Effective, names: list[str]) -> Check:
    key = "swanlab_run_name" if run.get("use_swanlab") and not names else "run_name"
    name, output = run.get(key), run.config.given.get("output_dir")
    if name and str(name) != str(output):
        return Check("run_name", PASS, name, None, f"{key}: {name}")
    text = texts.text("ahead.tracker.equals", key=key) if name else texts.text("ahead.tracker.made_up", key=key)
    suggestion = suggested_run_name(run.config, last_run(run.config))
    return Check(
        "run_name",
        WARN,
        name,
        suggestion,
        texts.text("ahead.tracker.joined", text=text, suggestion=_suggestion(run)),
        f"{key}: {suggestion}",
    )


def _suggestion(run: Effective) -> str:
    last = last_run(run.config)
    since = texts.text("ahead.tracker.since", name=last["name"]) if last else ""
    return texts.text("ahead.tracker.telling", name=suggested_run_name(run.config, last), since=since)
