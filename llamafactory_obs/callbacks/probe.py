"""Callback `probe`: a companion process asks each new checkpoint the fixed probes while the training goes on."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from .. import texts
from ..errors import ConfigError
from ..probe.in_words import in_words
from ..record.reader import read_rows
from ..record.schema import FOLDER, PROBE, Key
from ..suite import load_suite
from .base import ObsCallback
from .verdicts import ProbeEvents, layer_scores, passes

#: niceness of the companion: training comes first
_NICE = 10
#: ledger states after which nothing more comes for a checkpoint, or nothing soon (the server is down)
_SETTLED = ("done", "failed", "missed", "abandoned", "skipped", "retry")


@dataclass(eq=False)
class Probe(ObsCallback):
    """Starts `llamafactory-obs probe OUTPUT_DIR --watch` with the training and brings its verdicts into the terminal
    and the tracker, at the checkpoint's step. The companion ends by itself once the training has ended and all
    checkpoints are probed; its output is in `<output_dir>/obs/probe/companion.log`.
    """

    yaml_name: ClassVar[str] = "probe"
    tracker_keys: ClassVar[tuple[Key, ...]] = (
        Key("probe/<name>", "0 or 1", "the probe of this name passes at this checkpoint"),
        Key("probe_score/format", "share", "probes with a call whose calls are all well-formed"),
        Key("probe_score/tool_choice", "share", "probes that call the right tools, or none where none is right"),
        Key("probe_score/arguments", "share", "probes whose calls have the right arguments"),
        Key("probe_score/task", "share", "probes that pass"),
    )

    suite: str | None = None
    """your own suite (docs/suite.md); null for the three fixed probes"""
    backend: Literal["auto", "vllm", "local"] = "auto"
    """what generates: a running vLLM server, transformers in the companion, or what is there"""
    endpoint: str | None = None
    """of the vLLM server; null for http://localhost:8000/v1"""
    device: str = "cpu"
    """of the local backend: cpu, auto (a GPU of which a quarter stays free), cuda; no training may die of it"""
    companion: bool = True
    """false: you run `llamafactory-obs probe --watch` yourself, say in the vLLM environment; its verdicts come here"""
    wait_s: float = 60.0
    """seconds that the last save waits for the verdicts of the last checkpoints, so that the tracker gets them"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.wait_s < 0:
            raise ValueError(f"wait_s must not be negative, got {self.wait_s!r}")
        if self.suite is not None:
            try:
                load_suite(self.suite)
            except ConfigError as error:
                raise ValueError(f"suite: {error}") from None
        self._process: subprocess.Popen | None = None

    def begin(self) -> None:
        trainer, self._steps, self._began = self.run.trainer, [], time.time()
        self._is_main = trainer.state.is_world_process_zero
        if not self._is_main:
            return
        self._output_dir = Path(trainer.args.output_dir)
        self._events = ProbeEvents(self._output_dir)
        if self.context.stage in ("rm", "ppo"):
            text = "a reward model does not answer" if self.context.stage == "rm" else "not supported with PPO"
            self.run.event(
                "unavailable", self.yaml_name, "no probing", f"{text}; no checkpoint is probed", level="warn"
            )
        elif self.companion and (self._process is None or self._process.poll() is not None):
            self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "llamafactory_obs.cli", "probe", str(self._output_dir), "--watch"]
        command += ["--backend", self.backend, "--device", self.device, "--parent", str(os.getpid())]
        command += ["--segment", str(self.run.journal.writer.segment)]
        command += ["--endpoint", self.endpoint] if self.endpoint else []
        command += ["--suite", str(Path(self.suite).absolute())] if self.suite else []
        folder = self._output_dir / FOLDER / PROBE
        folder.mkdir(parents=True, exist_ok=True)
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        environment = {k: v for k, v in os.environ.items() if k not in names and not k.startswith("TORCHELASTIC")}
        environment |= {"LLAMAFACTORY_OBS_AUTOLOAD": "0", "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}
        with open(folder / "companion.log", "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the training; the companion hears of it from the record
                preexec_fn=lambda: os.nice(_NICE),
            )

    def saved(self, folder: str, last: bool) -> None:
        if self._is_main:
            self._steps.append(int(folder.rpartition("-")[2]))
            if last:
                self._wait()

    def logged(self, logs: dict) -> None:
        if self._is_main:
            self._relay()

    def end(self) -> None:
        if self._is_main:
            self._relay()

    def _wait(self) -> None:
        """Until the saved checkpoints have their verdicts; the trackers close right after the last save."""
        deadline = time.monotonic() + self.wait_s
        while self._process is not None and self._process.poll() is None and time.monotonic() < deadline:
            rows, _ = read_rows(self._output_dir / FOLDER / PROBE / "ledger.jsonl")
            mine = [row for row in rows if row.get("time", 0) >= self._began]  # not an older training's
            settled = {row.get("step") for row in mine if row.get("state") in _SETTLED}
            if settled.issuperset(self._steps):
                break
            time.sleep(0.5)
        self._relay()

    def _relay(self) -> None:
        """What the companion has written since the last time: into the terminal and the trackers."""
        if self._process is not None and self._process.poll() is not None:
            text = f"the companion has ended (exit code {self._process.returncode}); why: obs/probe/companion.log"
            text += "; `llamafactory-obs probe` asks the checkpoints by hand"
            self.run.event("unavailable", self.yaml_name, "companion ended", text, level="warn")
            self._process = None
        for event in self._events.new():
            said = event["text"]
            with texts.speaking(None):
                if event["title"] == "verdict" and texts.language() != "en":
                    said = in_words(event["evidence"])
                line = texts.text("alerts.line", step=event["step"], name="probe", said=said)
            self.run.journal.console.line(line, event["level"])
            self.run.journal.pass_on(event)
            if event["title"] == "verdict":
                values = passes(event["evidence"]) | layer_scores(event["evidence"])
                self.run.trackers.log(values, event["step"])
