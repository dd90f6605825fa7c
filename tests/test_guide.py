"""docs/guide.md followed to the letter by somebody in an empty folder: each of its commands is really run."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

from llamafactory_obs import load_record

GUIDE = ROOT / "docs" / "guide.md"
#: what is not run here, by its first words: where it is, and a word of it there
ELSEWHERE = {
    "pip install": ("Makefile", "pip install"),
    "export VLLM_ALLOW": ("tests/vllm_server.py", "VLLM_ALLOW_RUNTIME_LORA_UPDATING"),
    "vllm serve": ("tests/vllm_server.py", "vllm.entrypoints.openai.api_server"),
    "llamafactory-obs overfit": ("tests/test_overfit.py", '"overfit"'),
    "llamafactory-obs baseline-speed": ("tests/test_speed.py", "baseline-speed"),
    "llamafactory-obs drill resume": ("tests/test_drill_resume.py", "resume"),
}
#: exit codes beside 0 that these commands give of a run that was stopped by hand and has learnt nothing yet
ALSO = {"llamafactory-obs diagnose": 1, "llamafactory-obs probe": 1, "llamafactory-obs resume": 1}


def commands() -> list[str]:
    """The lines of all `sh` blocks, in their order."""
    blocks = re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def edit(config: Path) -> None:
    """What section 0 asks for, on the demo's model and data; and a CPU's settings."""
    subprocess.run([sys.executable, ROOT / "demo" / "make_model.py", "model"], cwd=config.parent, check=True)
    values = yaml.safe_load(config.read_text(encoding="utf-8"))
    values |= {"model_name_or_path": "model", "dataset": "orders", "dataset_dir": str(ROOT / "demo" / "data")}
    values |= {"template": "qwen3_nothink", "output_dir": "saves/my-run", "cutoff_len": 1024}
    values |= {"use_cpu": True, "bf16": False, "preprocessing_num_workers": 1, "gradient_accumulation_steps": 1}
    values |= {"learning_rate": 0.01, "warmup_steps": 2, "save_steps": 20, "eval_steps": 20, "max_steps": 2000}
    values |= {"lora_dropout": 0.0, "val_size": 4, "logging_steps": 5}
    config.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")


class Person:
    """Types one command after the other; the training and `watch` stay open, as in a terminal of their own."""

    def __init__(self, folder: Path):
        self.folder, self.open = folder, {}
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    def types(self, line: str) -> None:
        if line.startswith(("llamafactory-cli train", "llamafactory-obs watch")):
            return self.starts(line)
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300
        )
        verb = " ".join(line.split()[:2])
        assert done.returncode in (0, ALSO.get(verb, 0)), f"{line}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert "Traceback" not in done.stderr, f"{line}\n{done.stderr[-3000:]}"
        print(f"$ {line}\n{done.stdout}")

    def starts(self, line: str) -> None:
        name = line.split()[1]
        with (self.folder / f"{name}.log").open("w") as log:
            self.open[name] = subprocess.Popen(
                line.split(), cwd=self.folder, env=self.environment, stdout=log, stderr=log
            )
        if name == "train":
            wait_for(self.folder / "saves" / "my-run" / "checkpoint-20" / "trainer_state.json", self.open[name])

    def leaves(self) -> None:
        for process in self.open.values():
            process.kill()
            process.wait()


def wait_for(file: Path, process: subprocess.Popen) -> None:
    for _ in range(1200):
        if file.is_file():
            return
        assert process.poll() is None, "the training ended early"
        time.sleep(0.1)
    raise AssertionError(f"no {file}")


@pytest.mark.slow
def test_from_an_empty_folder_to_a_record_sheet(llamafactory, tmp_path):
    person = Person(tmp_path)
    try:
        for line in commands():
            if line.startswith(tuple(ELSEWHERE)):
                continue
            if "compare" in line:  # the next run
                shutil.copytree(tmp_path / "saves" / "my-run", tmp_path / "saves" / "my-run-2")
            person.types(line)
            if line.startswith("cp "):
                edit(tmp_path / "run.yaml")
            if line.endswith("--stop"):
                assert person.open["train"].wait(60) == 0
    finally:
        person.leaves()
    run = tmp_path / "saves" / "my-run"
    rows = [json.loads(line) for line in (run / "obs" / "probes.jsonl").read_text(encoding="utf-8").splitlines()]
    assert load_record(run).checkpoints and {row["probe"] for row in rows} == {"call", "no_call", "tool_error"}
    assert "%" in (tmp_path / "watch.log").read_text(encoding="utf-8")
    assert (tmp_path / "report.html").stat().st_size > 10_000 and (tmp_path / "my-run.tar.gz").is_file()


def test_commands_that_run_elsewhere_do_so():
    lines = commands()
    assert len(lines) > 20
    for start, (where, word) in ELSEWHERE.items():
        assert any(line.startswith(start) for line in lines), f"no longer in the guide: {start}"
        assert word in (ROOT / where).read_text(encoding="utf-8"), f"{where} does not run {start}"


def test_the_six_commands_are_in_both_readmes():
    table = re.findall(r"^\| \d \| `([^`]+)`", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(table) == 6
    for readme in ROOT.glob("README*.md"):
        text = readme.read_text(encoding="utf-8")
        assert not [command for command in table if f"`{command}`" not in text], readme.name
