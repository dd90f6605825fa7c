"""`llamafactory-obs doctor`: what is installed, whether the plug is live here, what is missing and what that costs.

Nothing heavy is imported in this process: whether the plug is live is proven in a fresh one that runs `import torch`.
"""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import textwrap

from . import __version__
from .plugin.autoload import switched_off

WIDTH = 80
TIMEOUT_S = 180

#: what this release was tested with
TESTED = {"llamafactory": "0.9.5", "transformers": "5.6.0"}

INSTALL = 'pip install "llamafactory-obs[train]"'
EXPLICIT = "unset it, or use `llamafactory-obs train`"

#: distribution -> what its absence costs
PACKAGES = {
    "torch": "no training and no callbacks here; reading records works",
    "transformers": "no training and no callbacks here; reading records works",
    "llamafactory": f"no training from a YAML: {INSTALL}",
    "peft": "no LoRA",
    "trl": "no dpo, kto, ppo",
    "accelerate": "the Trainer does not start",
    "datasets": "LlamaFactory loads no data",
    "vllm": "no vLLM server from this environment (it may live in another one)",
    "deepspeed": "no ZeRO",
    "pandas": "load_record(...).frame() does not work; the plain columns do",
    "matplotlib": "no pictures",
    "nvidia-ml-py": "no whole-card memory: what vLLM and others hold stays unseen",
    "psutil": "no process memory and no hardware facts in run.json",
}
TRACKERS = ("wandb", "swanlab", "tensorboard", "trackio", "mlflow")

_PROBE = """
import importlib.metadata, json, sys
out = {"torch": None, "error": None, "cuda": [], "live": False}
out["entry_point"] = any(
    p.name == "llamafactory_obs" for p in importlib.metadata.entry_points(group="torch.backends"))
try:
    import torch
    out["torch"] = torch.__version__
    out["cuda"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
except ModuleNotFoundError as error:
    out["error"] = None if error.name == "torch" else f"{type(error).__name__}: {error}"
except Exception as error:
    out["error"] = f"{type(error).__name__}: {error}"
try:
    from llamafactory_obs.plugin import autoload
    out["live"] = autoload.is_live()
except ImportError as error:
    out["error"] = out["error"] or f"{type(error).__name__}: {error}"
print("\\n" + json.dumps(out))
"""


def examine() -> dict:
    """Look at this environment.

    Returns:
        `{"version", "live", "reasons": [{"what", "fix"}], "packages": [{"name", "version", "tested", "note"}],
        "trackers": {name: version|None}, "machine": {"python", "platform", "gpus", "gpu_note", "torchrun", "git"},
        "notes": [text, ...]}`; `live`: does the unmodified `llamafactory-cli train` honour our keys here?
    """
    versions = {name: _version(name) for name in (*PACKAGES, *TRACKERS)}
    probe = _fresh_import()
    reasons = _reasons(versions, probe)
    return {
        "version": __version__,
        "live": probe["live"] and not reasons,
        "reasons": reasons,
        "packages": [_package(name, versions[name]) for name in PACKAGES],
        "trackers": {name: versions[name] for name in TRACKERS},
        "machine": _machine(probe),
        "notes": _notes(versions),
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _package(name: str, version: str | None) -> dict:
    tested = TESTED.get(name)
    if version is None:
        note = PACKAGES[name]
    else:
        note = "" if tested is None else "as tested" if version == tested else f"tested with {tested}"
    return {"name": name, "version": version, "tested": tested, "note": note}


def _fresh_import() -> dict:
    """`import torch` in a process of its own, as `llamafactory-cli` would (the current folder is not on its path)."""
    empty = {"torch": None, "cuda": [], "live": False, "entry_point": None}
    command = [sys.executable, "-P", "-c", _PROBE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return {**empty, "error": f"it took longer than {TIMEOUT_S} s"}
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):  # it crashed
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {**empty, "error": last}


def _reasons(versions: dict, probe: dict) -> list[dict]:
    """Why the plug is not live; empty when it is."""
    environment, torch_autoload = os.environ, os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")
    found = []

    def say(what: str, fix: str) -> None:
        found.append({"what": what, "fix": fix})

    if probe["error"]:
        say(f"`import torch` fails: {probe['error']}", "repair that first")
    elif probe["torch"] is None:
        say("torch is not installed", INSTALL)
    if versions["llamafactory"] is None:
        say("LlamaFactory is not installed: nothing to plug into", INSTALL)
    if torch_autoload != "1":
        what = f"TORCH_DEVICE_BACKEND_AUTOLOAD={torch_autoload} switches PyTorch's start-up mechanism off for everyone"
        say(what, EXPLICIT)
    if switched_off():
        what = f"LLAMAFACTORY_OBS_AUTOLOAD={environment['LLAMAFACTORY_OBS_AUTOLOAD']} switches automatic loading off"
        say(what, EXPLICIT)
    if probe["entry_point"] is False:
        what = "no entry point llamafactory_obs in the group torch.backends of the installed metadata"
        say(what, "install again: pip install --force-reinstall --no-deps llamafactory-obs")
    if _enabled("USE_V1"):
        say("USE_V1=1 chooses LlamaFactory's v1 trainer, whose callbacks are of another kind", "unset it")
    if probe["torch"] and tuple(map(int, probe["torch"].split(".")[:2])) < (2, 5):
        what = f"torch {probe['torch']} has no start-up mechanism (2.5 and later have it)"
        say(what, "upgrade torch, or use `llamafactory-obs train`")
    if not found and not probe["live"]:
        say("`import torch` does not put the hook in place, for no reason known here", "use `llamafactory-obs train`")
    return found


def _machine(probe: dict) -> dict:
    from .gpu.nvml import Nvml

    nvml = Nvml()
    gpus = []
    for device in nvml.devices_for_process():
        memory = nvml.memory(device.logical)
        gpus.append(
            {
                "name": nvml.name(device.logical),
                "total_gib": round(memory["total"] / 2**30, 1) if memory else None,
                "used_gib": round(memory["used"] / 2**30, 1) if memory else None,
                "note": device.reason,
            }
        )
    driver = nvml.driver_version()
    note = nvml.reason
    nvml.close()
    if not gpus and probe["cuda"]:  # torch has a GPU that NVML does not show
        gpus = [{"name": name, "total_gib": None, "used_gib": None, "note": note} for name in probe["cuda"]]
    elif gpus and not probe["cuda"]:
        note = "NVML sees a GPU, torch has none (a CPU build, or hidden from it): training runs on the CPU"
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "gpus": gpus,
        "gpu_note": note,
        "driver": driver,
        "torchrun": shutil.which("torchrun"),
        "git": shutil.which("git"),
    }


def _notes(versions: dict) -> list[str]:
    notes = []
    if versions["transformers"] == "5.6.0":
        notes.append("transformers 5.6.0: LlamaFactory 0.9.5 allows it, its main branch excludes it as broken later on")
    for name, tested in TESTED.items():
        if versions[name] not in (None, tested):
            notes.append(f"{name} {versions[name]}: tested was {tested}; look closely at the first run's output")
    if _enabled("ALLOW_EXTRA_ARGS"):
        text = "LlamaFactory then only warns about keys it does not know: without the plug `callbacks:` does nothing"
        notes.append(f"ALLOW_EXTRA_ARGS=1: {text}")
    return notes


def _enabled(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("true", "y", "1")  # LlamaFactory's own rule


def render(result: dict) -> str:
    """One screen of 80 columns."""
    live = result["live"]
    lines = [f"llamafactory-obs {result['version']}: the plug is {'live' if live else 'NOT live'} in this environment"]
    if live:
        lines.append("  `llamafactory-cli train` honours `callbacks:` and `obs:`")
    for reason in result["reasons"]:
        lines += [*_row("  -", reason["what"], column=4), *_row("", f"fix: {reason['fix']}", column=4)]
    lines.append("")
    for row in result["packages"]:
        lines += _row(row["name"], f"{row['version'] or 'missing':<12} {row['note']}".rstrip(), indent=13)
    have = [f"{name} {version}" for name, version in result["trackers"].items() if version]
    lines += _row("trackers", ", ".join(have) or "none: the record on disk is all there is")
    missing = [name for name, version in result["trackers"].items() if not version]
    if missing:
        lines += _row("", f"missing (`report_to:` cannot name them): {', '.join(missing)}")
    machine = result["machine"]
    lines += ["", *_row("python", f"{machine['python']} on {machine['platform']}")]
    for gpu in machine["gpus"]:
        size = f", {gpu['used_gib']} of {gpu['total_gib']} GiB in use" if gpu["total_gib"] else ""
        lines += _row("gpu", f"{gpu['name']}{size}" + (f" ({gpu['note']})" if gpu["note"] else ""))
    if machine["driver"]:
        lines += _row("driver", machine["driver"])
    if not machine["gpus"]:
        lines += _row("gpu", f"none: RSS instead of VRAM ({machine['gpu_note']})")
    elif machine["gpu_note"]:
        lines += _row("", machine["gpu_note"])
    lines += _row("torchrun", "on PATH" if machine["torchrun"] else "not on PATH: no FORCE_TORCHRUN=1, no several GPUs")
    lines += _row("git", "present" if machine["git"] else "missing: run.json cannot say which code made the run")
    for note in result["notes"]:
        lines += _row("note", note)
    return "\n".join(lines)


def _row(name: str, text: str, indent: int = 0, column: int = 15) -> list[str]:
    """`name` and the text beside it, wrapped under itself."""
    under = " " * (column + indent)
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"{name:<{column}}", subsequent_indent=under, break_on_hyphens=False
    )
