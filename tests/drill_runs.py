"""Drills that start in a second: each training is a fork of this process, which has LlamaFactory loaded already."""

import os
import shutil
import signal
import time
from pathlib import Path

import yaml

from llamafactory_obs.drill.resume import trainings
from llamafactory_obs.drill.resume.drill import drill
from llamafactory_obs.drill.resume.plan import RESUMED
from llamafactory_obs.preflight.rehearsal import child
from llamafactory_obs.preflight.rehearsal.child import Ended, last_words
from llamafactory_obs.preflight.run_config import RunConfig, read_run_config


def forked(config: Path, output_dir: Path, log: Path, env: dict, on_step, kill_when=lambda: False) -> Ended:
    """`rehearsal.child.train` without loading LlamaFactory again: a real training in a process group of its own."""
    import datasets
    from llamafactory.train.tuner import run_exp

    started = time.monotonic()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.setsid()
            out = os.open(log, os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(out, 1), os.dup2(out, 2)
            os.environ.clear(), os.environ.update(env)
            datasets.config.HF_DATASETS_CACHE = Path(env["HF_DATASETS_CACHE"])
            run_exp(yaml.safe_load(config.read_text()))
            code = 0
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        if kill_when():
            os.killpg(pid, signal.SIGKILL)
        time.sleep(0.02)
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, time.monotonic() - started, last_words(log) if code else [])


class Runs:
    """Drills of one config. All but the resumed training are made once: the same killed training is resumed again."""

    def __init__(self, given: dict, folder: Path, monkeypatch, steps: int = 6, extra: int = 4):
        self.folder, self.steps, self.extra = folder, steps, extra
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run.yaml").write_text(yaml.safe_dump(given))
        self.config: RunConfig = read_run_config(folder / "run.yaml")
        self.count = 0
        monkeypatch.setattr(child, "train", forked)

    def first(self):
        """A whole drill; its trainings are kept."""
        return drill(
            self.config, steps=self.steps, extra=self.extra, out=self.folder / "first", take_away=None, keep=True,
            say=lambda line: None,
        )  # fmt: skip

    def again(self, monkeypatch, take_away: str | None = None, damage=None, config: RunConfig | None = None):
        """Another drill with the trainings of the first; only the resume is made.

        Args:
            damage: called with the output folder of the killed training before the resume.
        """
        self.count += 1
        out = self.folder / f"drill{self.count}"

        def train(plan, name, scratch, say):
            if name == RESUMED:
                if damage:
                    damage(plan)
                return real(plan, name, scratch, say)
            shutil.copytree(self.folder / "first" / name, plan.output_dir(name))
            shutil.copy(self.folder / "first" / f"{name}.log", plan.log(name))
            if name == "broken":  # the first drill has resumed it already: back to where it was killed
                _rewind(plan.output_dir(name), plan.total)
                plan.told.touch()
            return Ended(0, 1.0, [])

        from llamafactory_obs.drill.resume import drill as module

        real = trainings.train
        monkeypatch.setattr(module, "train", train)
        return drill(
            config or self.config, steps=self.steps, extra=self.extra, out=out, take_away=take_away, keep=False,
            say=lambda line: None,
        )  # fmt: skip


def _rewind(output_dir: Path, total: int) -> None:
    """Take out what the resumed training added: rows of its segment, and the last checkpoint."""
    from llamafactory_obs.record.schema import decode

    shutil.rmtree(output_dir / f"checkpoint-{total}")
    for file in (output_dir / "obs").glob("*.jsonl"):
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(line for line in lines if decode(line).get("segment", 0) == 0))
