"""The notice before a machine is taken back: a checkpoint, a clean stop, and the handlers of others put back."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from test_checkpoint_guard import events
from test_ranks import two  # noqa: F401  (a fixture)
from tiny import tiny_config
from transformers import TrainerCallback

from llamafactory_obs import load_record
from llamafactory_obs.callbacks import notice
from llamafactory_obs.callbacks.notice import Notices
from llamafactory_obs.record.checkpoints import read_checkpoints

LORA = {"finetuning_type": "lora"}


class Signal(TrainerCallback):
    """Sends this process a signal, once, in the middle of a step, of an evaluation or of a save."""

    def __init__(self, step, number=signal.SIGTERM, when="on_optimizer_step"):
        self.sent = False

        def send(args, state, control, **kwargs):
            if state.global_step == step and not self.sent:
                self.sent = True
                os.kill(os.getpid(), number)

        setattr(self, when, send)


def stopped(out) -> list[int]:
    """Steps that have a checkpoint; the last one must be the last step of the record."""
    steps = sorted(int(folder.name.split("-")[1]) for folder in out.glob("checkpoint-*"))
    assert load_record(out).steps["step"][-1] == steps[-1]
    return steps


@pytest.fixture(autouse=True)
def handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    assert {number: signal.getsignal(number) for number in before} == before, "they are put back"


def test_a_notice_saves_and_stops_at_the_end_of_the_step(train, model, data):
    sender = Signal(3)  # on_optimizer_step: state.global_step is still that of the step before
    out = train(callbacks=["checkpoint_guard"], max_steps=50, extra_callbacks=[sender], **LORA)
    assert stopped(out) == [4]
    titles = [(row["title"], row["step"]) for row in events(out, "notice")]
    assert titles == [("notice", 4), ("checkpoint landed", 4)]
    landed = events(out, "notice")[-1]
    assert "SIGTERM" in events(out, "notice")[0]["text"] and "resumes exactly" in landed["text"]
    assert landed["evidence"]["path"] == str(out / "checkpoint-4") and 0 <= landed["evidence"]["after_s"] < 60
    assert read_checkpoints(out)[0]["notice"] is True
    again = train(out, callbacks=["checkpoint_guard"], max_steps=6, overwrite_output_dir=False, **LORA)
    assert load_record(again).steps["step"] == [1, 2, 3, 4, 5, 6], "the same command goes on"


@pytest.mark.parametrize("when", ["on_evaluate", "on_save"])
def test_a_notice_during_an_evaluation_or_a_save_waits_for_no_other_step(train, when):
    more = {"val_size": 0.2, "eval_strategy": "steps", "eval_steps": 2, "save_steps": 2 if when == "on_save" else 100}
    sender = Signal(2, when=when)
    out = train(callbacks=["checkpoint_guard"], max_steps=50, extra_callbacks=[sender], **more, **LORA)
    assert stopped(out) == [2]
    assert [row["title"] for row in events(out, "notice")] == ["notice", "checkpoint landed"]


def test_save_only_and_other_signals(train):
    usr1 = {"on_notice": "save", "signals": "SIGUSR1"}
    senders = [Signal(1, signal.SIGUSR1), Signal(3, signal.SIGUSR1)]
    out = train(callbacks=[{"checkpoint_guard": usr1}], max_steps=6, extra_callbacks=senders, **LORA)
    assert stopped(out) == [2, 4, 6], "the last one is the run's own"
    assert [row["title"] for row in events(out, "notice")] == ["notice", "checkpoint landed"] * 2


def test_a_handler_that_was_there_is_called_and_its_exit_put_off(train):
    called = []

    def theirs(number, frame):
        called.append(number)
        raise SystemExit(1)

    before = signal.signal(signal.SIGTERM, theirs)
    try:
        out = train(callbacks=["checkpoint_guard"], max_steps=50, extra_callbacks=[Signal(1)], **LORA)
        assert stopped(out) == [2] and called == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is theirs
        off = [{"checkpoint_guard": {"on_notice": "off"}}]
        with pytest.raises(SystemExit):
            train(callbacks=off, max_steps=50, extra_callbacks=[Signal(1)], **LORA)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_notice_shorter_than_a_save_is_told(train):
    short = [{"checkpoint_guard": {"grace_s": 0.001}}]
    out = train(callbacks=short, max_steps=4, save_steps=2, **LORA)
    assert [(row["title"], row["step"]) for row in events(out, "alert")] == [("notice_too_short", 2)], "once"
    again = train(out, callbacks=short, max_steps=5, save_steps=100, overwrite_output_dir=False, **LORA)
    told = [row for row in events(again, "alert") if row["segment"] == 1]
    assert [(row["title"], row["step"]) for row in told] == [("notice_too_short", 4)], "at the start, from the record"


def test_transformers_own_handler_is_left_alone(train):
    out = train(callbacks=["checkpoint_guard"], max_steps=2, enable_jit_checkpoint=True, **LORA)
    assert any("enable_jit_checkpoint" in row["text"] for row in events(out, "note"))


def test_not_in_the_main_thread():
    heard = []
    thread = threading.Thread(target=lambda: heard.append(Notices(["SIGTERM"], 0.0).install()))
    thread.start()
    thread.join()
    assert "main thread" in heard[0]


def test_two_signals_of_one_notice(monkeypatch):
    """torchrun passes on what SLURM has sent to its workers already."""
    ends = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: ends.append(number))
    try:
        for together, wanted in ((5.0, 1), (0.0, 2)):
            ends.clear()
            notices = Notices(["SIGUSR1"], together)
            notices.install()
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGUSR1)
            assert notices.take().signal == "SIGUSR1" and notices.take() is None
            assert len(ends) == wanted, "the second one is no longer ours"
            notices.remove()
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
        monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "120")
        assert notice.together_s() == notice.TOGETHER_S and notice.grace_s() == 120
        monkeypatch.delenv("TORCHELASTIC_RUN_ID")
        monkeypatch.delenv("SLURM_JOB_ID", raising=False)
        assert notice.together_s() == 0
    finally:
        signal.signal(signal.SIGUSR1, before)


CHILD = """
import json, sys, time
sys.path.insert(0, sys.argv[2])
from llamafactory_obs.plugin import autoload
autoload.install()
from llamafactory.train.tuner import run_exp
from transformers import TrainerCallback

class Slow(TrainerCallback):
    def on_substep_end(self, *args, **kwargs):
        print("STEP", flush=True)
        time.sleep(30)

run_exp(json.loads(sys.argv[1]), callbacks=[Slow()])
"""


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once(llamafactory, model, data, tmp_path):
    config = tiny_config(model, data, tmp_path / "out", callbacks=["checkpoint_guard"], gradient_accumulation_steps=2)
    environment = {**os.environ, "DISABLE_VERSION_CHECK": "1"}
    for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        environment.pop(name, None)
    command = [sys.executable, "-c", CHILD, json.dumps(config), str(Path(__file__).parent)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    try:
        while "STEP" not in child.stdout.readline():
            assert child.poll() is None
        child.terminate()
        time.sleep(1.0)
        assert child.poll() is None, "the first one waits for the end of the step"
        start = time.monotonic()
        child.terminate()
        assert child.wait(60) == -signal.SIGTERM and time.monotonic() - start < 50
    finally:
        child.kill()


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1, None])
def test_both_ranks_save_and_stop_at_the_same_step(two, rank):  # noqa: F811
    """A signal to the first rank, to the second alone, or to both: one checkpoint, at one step."""
    record, _ = two(callbacks=["checkpoint_guard"], max_steps=60, extra={"notice": {"step": 4, "rank": rank}})
    out = record.folder.parent
    last = stopped(out)[-1]
    assert last == (7 if rank == 1 else 5), "in step 5; the rows of several ranks come two steps late"
    folder = out / f"checkpoint-{last}"
    assert all((folder / f"rng_state_{one}.pth").is_file() for one in (0, 1))
    assert [row["title"] for row in events(out, "notice")] == ["notice", "checkpoint landed"]
    saved = read_checkpoints(out)[-1]
    assert saved["step"] == last and saved["good"] and saved["lost"] == []
