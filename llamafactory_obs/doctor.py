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

from . import __version__
from .plugin.autoload import switched_off
from .texts import text
from .texts.wrap import padded, wrapped

WIDTH = 80
TIMEOUT_S = 180

#: what this release was tested with
TESTED = {"llamafactory": "0.9.5", "transformers": "5.6.0"}

INSTALL = 'pip install "llamafactory-obs[train]"'

#: distributions that are looked for; what the absence of one costs stands in the texts
PACKAGES = (
    "torch",
    "transformers",
    "llamafactory",
    "peft",
    "trl",
    "accelerate",
    "datasets",
    "vllm",
    "deepspeed",
    "pandas",
    "matplotlib",
    "nvidia-ml-py",
    "psutil",
)
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
        note = text(f"doctor.package.{name}", install=INSTALL)
    elif tested is None:
        note = ""
    else:
        note = text("doctor.as_tested") if version == tested else text("doctor.tested_with", version=tested)
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
        say(text("doctor.reason.torch_fails", error=probe["error"]), text("doctor.reason.repair"))
    elif probe["torch"] is None:
        say(text("doctor.reason.no_torch"), INSTALL)
    if versions["llamafactory"] is None:
        say(text("doctor.reason.no_llamafactory"), INSTALL)
    if torch_autoload != "1":
        what = text("doctor.reason.torch_autoload", torch_autoload=torch_autoload)
        say(what, text("doctor.fix.explicit"))
    if switched_off():
        what = text("doctor.reason.autoload_off", value=environment["LLAMAFACTORY_OBS_AUTOLOAD"])
        say(what, text("doctor.fix.explicit"))
    if probe["entry_point"] is False:
        what = text("doctor.reason.no_entry_point")
        say(what, text("doctor.reason.install_again"))
    if _enabled("USE_V1"):
        say(text("doctor.reason.v1"), text("doctor.reason.unset"))
    if probe["torch"] and tuple(map(int, probe["torch"].split(".")[:2])) < (2, 5):
        what = text("doctor.reason.old_torch", version=probe["torch"])
        say(what, text("doctor.reason.upgrade"))
    if not found and not probe["live"]:
        say(text("doctor.reason.no_hook"), text("doctor.reason.use_train"))
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
        note = text("doctor.reason.nvml_only")
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
        notes.append(text("doctor.reason.transformers"))
    for name, tested in TESTED.items():
        if versions[name] not in (None, tested):
            notes.append(text("doctor.reason.other_version", name=name, version=versions[name], tested=tested))
    if _enabled("ALLOW_EXTRA_ARGS"):
        notes.append(text("doctor.note.extra_args"))
    return notes


def _enabled(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("true", "y", "1")  # LlamaFactory's own rule


def render(result: dict) -> str:
    """One screen of 80 columns."""
    lines = [text("doctor.live" if result["live"] else "doctor.not_live", version=result["version"])]
    if result["live"]:
        lines.append(text("doctor.honours"))
    for reason in result["reasons"]:
        lines += [*_row("  -", reason["what"], column=4), *_row("", text("doctor.to_fix", fix=reason["fix"]), column=4)]
    lines.append("")
    for row in result["packages"]:
        version = padded(row["version"] or text("doctor.missing"), 12)
        lines += _row(row["name"], f"{version} {row['note']}".rstrip(), indent=13)
    have = [f"{name} {version}" for name, version in result["trackers"].items() if version]
    lines += _row(text("doctor.row.trackers"), ", ".join(have) or text("doctor.no_tracker"))
    missing = [name for name, version in result["trackers"].items() if not version]
    if missing:
        lines += _row("", text("doctor.missing_trackers", names=", ".join(missing)))
    machine = result["machine"]
    lines += ["", *_row("python", text("doctor.python", version=machine["python"], platform=machine["platform"]))]
    for gpu in machine["gpus"]:
        size = text("doctor.in_use", used=gpu["used_gib"], total=gpu["total_gib"]) if gpu["total_gib"] else ""
        lines += _row("gpu", f"{gpu['name']}{size}" + (f" ({gpu['note']})" if gpu["note"] else ""))
    if machine["driver"]:
        lines += _row(text("doctor.row.driver"), machine["driver"])
    if not machine["gpus"]:
        lines += _row("gpu", text("doctor.no_gpu", why=machine["gpu_note"]))
    elif machine["gpu_note"]:
        lines += _row("", machine["gpu_note"])
    lines += _row("torchrun", text("doctor.on_path" if machine["torchrun"] else "doctor.not_on_path"))
    lines += _row("git", text("doctor.present" if machine["git"] else "doctor.no_git"))
    for note in result["notes"]:
        lines += _row(text("doctor.row.note"), note)
    return "\n".join(lines)


def _row(name: str, said: str, indent: int = 0, column: int = 15) -> list[str]:
    """`name` and the text beside it, wrapped under itself."""
    return wrapped(said, WIDTH, padded(name, column), " " * (column + indent))
