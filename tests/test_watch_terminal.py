"""The verb in a pseudo-terminal: it leaves the terminal as it was, follows its size, and sends little."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from live_record import LiveRecord
from small_terminal import OnTerminal, watch_words


@pytest.fixture
def on_terminal():
    """Starts the verb; what still runs at the end is ended."""
    started = []

    def start(*words, **more):
        started.append(OnTerminal(watch_words(*words), **more))
        return started[-1]

    yield start
    for one in started:
        one.close()


def test_q_leaves_and_the_terminal_is_as_it_was(tmp_path, on_terminal):
    record = LiveRecord(tmp_path, max_steps=1000)
    record.steps(50)
    program = on_terminal(tmp_path, "--interval", "0.2")
    assert "step 50/1000" in program.read(20, "step 50/1000")
    program.read(0.5)
    assert program.screen.modes[1049] and not program.screen.modes[25] and not program.is_as_it_was()
    before = len(program.raw)
    record.steps(1)
    assert "step 51/1000" in program.read(5, "step 51/1000")
    assert len(program.raw) - before < 2000
    program.size(100, 30)
    program.read(1.0)
    assert len(program.screen.text().splitlines()) == 30 and "q leaves" in program.screen.text().splitlines()[-1]
    assert program.screen.strange == []
    program.press("p")
    program.read(5, "PAUSED")
    record.steps(5)
    program.read(0.6)
    assert "step 51/1000" in program.screen.text()
    program.press("q")
    assert program.end() == 0
    assert program.is_as_it_was()
    assert not program.screen.modes[1049] and program.screen.modes[25] and program.screen.modes[7]
    last = program.raw.split(b"\x1b[?1049l")[-1].decode()
    assert "step 51/1000" in last and "it trains on" in last and "\x1b" not in last


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 0)])
def test_a_signal_leaves_the_terminal_as_it_was(tmp_path, on_terminal, number, code):
    LiveRecord(tmp_path).steps(3)
    program = on_terminal(tmp_path)
    program.read(20, "step 3/100")
    assert program.end(number) == code
    assert program.is_as_it_was() and not program.screen.modes[1049] and program.screen.modes[25]


def test_ctrl_z_gives_the_terminal_back_and_fg_takes_it_again(tmp_path, on_terminal):
    LiveRecord(tmp_path).steps(3)
    program = on_terminal(tmp_path, "--interval", "0.2")
    program.read(20, "step 3/100")
    os.kill(program.pid, signal.SIGTSTP)
    _, status = os.waitpid(program.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    program.read(0.3)
    assert program.is_as_it_was() and not program.screen.modes[1049]
    program.screen.resize(80, 24)
    os.kill(program.pid, signal.SIGCONT)
    assert "step 3/100" in program.read(5, "q leaves") and program.screen.modes[1049]
    program.press("q")
    assert program.end() == 0 and program.is_as_it_was()


def test_untrusted_text_does_not_act_on_a_real_terminal(tmp_path, on_terminal):
    record = LiveRecord(tmp_path)
    record.steps(3)
    record.probe("call", False, "\x1b[2J\x1b[?1049l\x1b]0;t\x07" + "很长的中文输出" * 400)
    program = on_terminal(tmp_path, LLAMAFACTORY_OBS_LANG="zh")
    program.read(20, "q 退出")
    program.read(0.5)
    assert program.screen.strange == [] and program.screen.modes[1049]
    assert "\\x1b[2J" in program.screen.text() and "训练中" in program.screen.text()
    program.press("q")
    assert program.end() == 0


@pytest.mark.slow
def test_a_real_training_from_before_its_start_to_its_end(llamafactory, model, data, tmp_path, on_terminal):
    import subprocess

    import yaml
    from tiny import tiny_config

    output = tmp_path / "run"
    about = {"max_steps": 40, "save_steps": 20, "eval_strategy": "steps", "eval_steps": 10, "val_size": 0.2}
    about["callbacks"] = ["label_mask", "vram", "throughput", "system", "diagnose"]
    config = tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump(tiny_config(model, data, output, **about)))
    program = on_terminal(output, "--interval", "0.3", "--price", "2")
    assert "waiting for the training" in program.read(20, "waiting for the training")
    train = subprocess.Popen(
        [sys.executable, "-m", "llamafactory_obs.cli", "train", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
    )
    try:
        began = time.monotonic()
        assert "finished  step 40/40 100%" in program.read(240, "finished")
        assert train.wait(60) == 0 and time.monotonic() - began < 300
    finally:
        train.kill()
    text = program.read(1.0)
    for part in ("train loss", "lowest", "tokens/s", "of the tokens in the loss", "checkpoint 40", "RAM", "cost"):
        assert part in text, part
    assert program.screen.strange == []
    program.press("q")
    assert program.end() == 0 and program.is_as_it_was()
