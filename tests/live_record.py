"""A record that grows, written by the recorder's own writer, with the rows that a training leaves."""

import math
import random
import time
from pathlib import Path

from llamafactory_obs.control.folder import control_folder
from llamafactory_obs.control.presence import Presence
from llamafactory_obs.record.schema import CHECKPOINTS, EVENTS, PROBES, STEPS
from llamafactory_obs.record.writer import RecordWriter


class LiveRecord:
    """One start of a training.

    Args:
        output_dir: of the run.
        max_steps: planned.
        from_step: above 0: a resume.
        begun: Unix seconds of its start; by default now.
        settings: training arguments for `run.json`; None: no `run.json`.
    """

    def __init__(
        self,
        output_dir: Path,
        max_steps: int = 100,
        from_step: int = 0,
        begun: float | None = None,
        settings: dict | None = None,
        step_s: float = 1.0,
    ):
        self.writer = RecordWriter(output_dir, from_step > 0, lambda problem: None)
        self.output_dir, self.time, self.step_s = output_dir, time.time() if begun is None else begun, step_s
        self.at = from_step
        if settings is not None:
            self.writer.write_run({"config": {"given": settings, "resolved": {"training_args": settings}}})
        kind = "resume" if from_step else "start"
        evidence = {"callbacks": "throughput", "max_steps": max_steps, "rows_replayed": 0}
        self.event(kind, "recorder", "training starts", "", evidence=evidence)

    def event(self, kind: str, name: str, title: str, text: str, level: str = "info", step: int | None = None, **more):
        """An event, now."""
        row = {"step": self.at if step is None else step, "time": self.time, "kind": kind, "level": level}
        self.writer.append(EVENTS, row | {"name": name, "title": title, "text": text, "action": "none"} | more)

    def alert(self, name: str, title: str, text: str, state: str = "raised", is_open: bool = True, **more):
        """An event of kind alert with its life."""
        life = {
            "id": f"{name}/{title}",
            "state": state,
            "level": more.get("level", "warn"),
            "since": self.at,
            "count": 1,
        }
        self.event("alert", name, title, text, alert=life | {"open": is_open, "told": True}, **more)

    def steps(self, count: int, seconds: float | None = None, **values) -> None:
        """So many steps."""
        for _ in range(count):
            self.at += 1
            self.time += self.step_s if seconds is None else seconds
            self.writer.append(STEPS, {"step": self.at, "time": self.time, **row(self.at), **values})

    def evaluate(self, loss: float, seconds: float = 0.0) -> None:
        """An evaluation behind the last step."""
        self.time += seconds
        self.writer.append(STEPS, {"step": self.at, "time": self.time, "eval/loss": loss, "eval/runtime": seconds})
        self.event("eval", "basics", "evaluation", f"eval loss {loss}", evidence={"eval/loss": loss})

    def save(self, seconds: float = 0.0, verdict: str | None = None) -> None:
        """A checkpoint behind the last step."""
        self.time += seconds
        path = f"{self.output_dir}/checkpoint-{self.at}"
        self.event("checkpoint", "recorder", "checkpoint saved", path, evidence={"path": path})
        if verdict:
            saved = {"step": self.at, "time": self.time, "path": path, "save_s": seconds}
            self.writer.append(CHECKPOINTS, saved | {"verdict": verdict, "good": verdict != "broken", "bytes": 1000})

    def probe(self, name: str, passed: bool, output: str, step: int | None = None, errors: tuple = ()) -> None:
        """A probe's result on a checkpoint; step 0: the base model."""
        step = self.at if step is None else step
        about = {"checkpoint": f"checkpoint-{step}" if step else "base", "content": str(step), "suite": "s"}
        result = {"probe": name, "prompt": "?", "passed": passed, "errors": list(errors), "output": output}
        self.writer.append(PROBES, {"step": step, "time": self.time, **about, **result, "seconds": 0.5})

    def end(self) -> None:
        """Training has ended in order."""
        self.event("end", "recorder", "training ended", f"{self.at} steps")
        self.writer.close()


def row(step: int) -> dict:
    """The columns of a step with the usual callbacks."""
    noise = random.Random(step).random()
    return {
        "train/loss": 2.0 * math.exp(-step / 300) + 0.5 + 0.1 * noise,
        "train/grad_norm": 1.0 + noise,
        "train/lr": 1e-4,
        "train/epoch": step / 100,
        "data/supervised_ratio": 0.25,
        "data/padding_ratio": 0.1,
        "data/truncated_ratio": 0.0,
        "system/tokens_per_sec": 1000.0 + 50 * noise,
        "system/device_used_gib": 60.0,
        "system/gpu_util": 0.93,
        "system/process_ram_gib": 12.0,
        "system/ram_available_gib": 100.0,
        "system/disk_free_gib": 500.0,
        "time/step_s": 1.0,
        "time/data_wait_s": 0.02,
    }


def hold(output_dir: Path, locked: bool = True) -> Presence:
    """The lock of a training on this output folder, held by this process."""
    folder = control_folder(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    presence = Presence(folder, {"from_step": 0})
    assert presence.take()
    return presence
