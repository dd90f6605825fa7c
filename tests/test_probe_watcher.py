"""The watcher: what is probed, in which order, and what becomes of the checkpoints that are not."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from test_probe_complete import adapter, safetensors

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.probe import copies
from llamafactory_obs.probe.complete import UNREST_S, prove
from llamafactory_obs.probe.ledger import Key, Later, Ledger
from llamafactory_obs.probe.wakeups import Wakeups
from llamafactory_obs.probe.watcher import Watcher

SUITE = "5" * 64


class Probes:
    """A fake probe: notes what it was given, and raises what it is told to raise."""

    def __init__(self):
        self.names: list[str] = []
        self.weights: list[bytes] = []
        self.raises: list[BaseException | None] = []
        self.meanwhile = lambda taken: None

    def __call__(self, taken):
        self.meanwhile(taken)
        error = self.raises.pop(0) if self.raises else None
        if error is not None:
            raise error
        self.names.append(taken.name)
        self.weights.append((taken.path / "adapter_model.safetensors").read_bytes())


@pytest.fixture
def run(tmp_path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def probes() -> Probes:
    return Probes()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def watcher(run, probes, said):
    def make(suite: str = SUITE, **options) -> Watcher:
        return Watcher(run, suite, options.pop("probe", probes), say=said.append, **{"poll_s": 0.02, **options})

    return make


def save(run: Path, step: int, fill: bytes | None = None, **more) -> Path:
    """A complete checkpoint with a content of its own."""
    return adapter(run / f"checkpoint-{step}", step, weights=safetensors(4, fill or bytes([step % 251])), **more)


def record(run: Path, *kinds: str, segment: int = 0, step: int = 0) -> None:
    """Append events; "checkpoint-20" stands for a checkpoint event."""
    (run / "obs").mkdir(parents=True, exist_ok=True)
    with open(run / "obs" / "events.jsonl", "a") as file:
        for kind in kinds:
            name, _, number = kind.partition("-")
            row = {"step": int(number or step), "time": time.time(), "segment": segment, "kind": name, "level": "info"}
            file.write(json.dumps(row) + "\n")


def rows(run: Path) -> list[dict]:
    """The rows of the ledger, in order."""
    file = run / "obs" / "probe" / "ledger.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def states(run: Path) -> list[tuple[str, str]]:
    return [(row["name"], row["state"]) for row in rows(run)]


def why(run: Path, name: str) -> str:
    return [row.get("why", "") for row in rows(run) if row["name"] == name][-1]


def let_age(folder: Path, seconds: float) -> None:
    """Make a folder and all in it look older."""
    then = time.time() - seconds
    for path in (*folder.iterdir(), folder):
        os.utime(path, (then, then))


def eventually(condition, timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


class Watching:
    """`watch()` in a thread; what it raises is raised by `join`."""

    def __init__(self, watcher: Watcher):
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(watcher,), daemon=True)
        self._thread.start()

    def _run(self, watcher):
        try:
            watcher.watch()
        except BaseException as error:
            self.error = error

    @property
    def goes_on(self) -> bool:
        return self._thread.is_alive()

    def join(self, timeout: float = 10.0) -> None:
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "the watch did not end"
        if self.error:
            raise self.error


# ---- one look ---------------------------------------------------------------------------------------------------


def test_oldest_first_each_once_and_nothing_is_left_behind(run, watcher, probes):
    for step in (100, 20, 9):
        save(run, step)
    for name in ("tmp-checkpoint-1000", "checkpoint-final", "checkpoint-"):
        adapter(run / name, 1000)
    assert watcher().once()
    assert probes.names == ["checkpoint-9", "checkpoint-20", "checkpoint-100"]
    assert watcher().once() and len(probes.names) == 3
    assert not any((run / "obs" / "probe" / "copies" / SUITE[:8]).iterdir())


def test_latest_only_skips_the_older_ones(run, watcher, probes):
    for step in (20, 40, 60):
        save(run, step)
    watcher(latest_only=True).once()
    assert probes.names == ["checkpoint-60"]
    assert states(run)[:2] == [("checkpoint-20", "skipped"), ("checkpoint-40", "skipped")]
    watcher().once()  # skipped is settled
    assert probes.names == ["checkpoint-60"]


def test_only_one_checkpoint(run, watcher, probes):
    save(run, 20), save(run, 40)
    assert watcher(only="checkpoint-40").once()
    assert probes.names == ["checkpoint-40"] and states(run) == [("checkpoint-40", "taken"), ("checkpoint-40", "done")]


def test_a_checkpoint_is_never_written_into_and_its_copy_can_be_read_by_all(run, watcher, probes):
    folder = save(run, 20)
    weights = folder / "adapter_model.safetensors"
    weights.chmod(0o600)
    before = {path.name: (path.stat().st_mtime_ns, path.stat().st_mode) for path in (*folder.iterdir(), folder)}
    modes = {}

    def look(taken):
        for path in (*taken.path.iterdir(), taken.path, taken.path.parent):
            modes[path.name] = stat.S_IMODE(path.stat().st_mode)

    probes.meanwhile = look
    old = os.umask(0o077)
    try:
        watcher().once()
    finally:
        os.umask(old)
    assert modes.pop(SUITE[:8]) == 0o755 and modes.pop(next(n for n in modes if n.startswith("checkpoint"))) == 0o755
    assert set(modes.values()) == {0o644} and "optimizer.pt" not in modes
    assert before == {path.name: (path.stat().st_mtime_ns, path.stat().st_mode) for path in (*folder.iterdir(), folder)}


def test_nothing_is_left_in_the_root_of_the_output_folder(run, watcher):
    save(run, 20)
    watcher().once()
    assert sorted(path.name for path in run.iterdir()) == ["checkpoint-20", "obs"]


def test_incomplete_is_not_probed_and_is_probed_once_complete(run, watcher, probes):
    folder = save(run, 20, state=b'{"global_')
    one = watcher()
    assert not one.once() and "no whole JSON" in one.incomplete["checkpoint-20"] and probes.names == []
    (folder / "trainer_state.json").write_text('{"global_step": 20}')
    assert one.once() and probes.names == ["checkpoint-20"] and one.incomplete == {}


def test_an_incomplete_one_is_abandoned_and_probed_after_all(run, watcher, probes):
    folder = save(run, 20, state=b"")
    let_age(folder, 10)
    save(run, 40)
    watcher().once()
    assert ("checkpoint-20", "abandoned") in states(run)
    assert why(run, "checkpoint-20") == "trainer_state.json is empty; a newer one is complete"
    watcher().once()
    assert states(run).count(("checkpoint-20", "abandoned")) == 1
    (folder / "trainer_state.json").write_text('{"global_step": 20}')
    let_age(folder, 5)
    watcher().once()
    assert probes.names == ["checkpoint-40", "checkpoint-20"]


def test_abandoned_because_the_training_is_over_or_nothing_changes(run, watcher):
    record(run, "start", "crash")
    let_age(save(run, 20, state=b""), 2)
    watcher().once()
    assert why(run, "checkpoint-20").endswith("the training is over")
    shutil.rmtree(run)
    let_age(save(run, 40, state=b""), 700)
    watcher().once()
    assert "nothing has changed in it for" in why(run, "checkpoint-40")


def test_an_unsupported_save_is_said_at_once(run, watcher, said):
    folder = run / "checkpoint-20"
    (folder / "pytorch_model_fsdp_0").mkdir(parents=True)
    (folder / "trainer_state.json").write_text('{"global_step": 20}')
    let_age(folder, 2 * UNREST_S)
    watcher().once()
    assert states(run) == [("checkpoint-20", "abandoned")] and "FSDP sharded" in said[-1]


# ---- rotation ---------------------------------------------------------------------------------------------------


def test_rotation_during_the_copy_takes_nothing_away(run, watcher, probes, monkeypatch):
    folder = save(run, 20)
    real = copies.shutil.copyfileobj

    def rotate_then_copy(*args):
        shutil.rmtree(folder, ignore_errors=True)
        return real(*args)

    monkeypatch.setattr(copies.shutil, "copyfileobj", rotate_then_copy)
    assert watcher().once() and probes.names == ["checkpoint-20"]


def test_rotation_before_the_copy_is_missed(run, watcher, probes, monkeypatch):
    folder = save(run, 20)
    real = copies._copy

    def rotate_then_copy(*args):
        shutil.rmtree(folder)
        return real(*args)

    monkeypatch.setattr(copies, "_copy", rotate_then_copy)
    watcher().once()
    assert probes.names == [] and states(run) == [("checkpoint-20", "missed")]
    assert why(run, "checkpoint-20") == "deleted before it could be taken (it vanished while it was copied)"


def test_a_save_over_the_same_step_during_the_copy_is_taken_whole(run, watcher, probes, monkeypatch):
    folder, new = save(run, 20), safetensors(4, b"\x77")
    let_age(folder, 1)
    real, count = copies.shutil.copyfileobj, []

    def write_then_copy(source, *args):
        if source.name.endswith("adapter_model.safetensors") and not count:
            count.append(1)
            (folder / "adapter_model.safetensors").write_bytes(new)  # in place, as an old safetensors does
        return real(source, *args)

    monkeypatch.setattr(copies.shutil, "copyfileobj", write_then_copy)
    one = watcher()
    assert not one.once() and probes.names == []
    assert one.once() and probes.weights == [new]


def test_what_waits_for_a_slow_probe_is_safe_from_rotation(run, watcher, probes):
    save(run, 20)
    probes.meanwhile = lambda taken: None if taken.step > 20 else follow()

    def follow():
        save(run, 40)
        eventually(lambda: ("checkpoint-40", "taken") in states(run))
        shutil.rmtree(run / "checkpoint-20"), shutil.rmtree(run / "checkpoint-40")
        record(run, "start", "crash")

    Watching(watcher()).join()
    assert probes.names == ["checkpoint-20", "checkpoint-40"]


def test_gone_ones_are_missed_by_the_record_or_by_save_steps(run, watcher, said):
    state = json.dumps({"global_step": 80, "save_steps": 20, "max_steps": 100}).encode()
    save(run, 80, state=state)
    watcher().once()
    assert [row for row in states(run) if row[1] == "missed"] == [(f"checkpoint-{n}", "missed") for n in (20, 40, 60)]
    assert said == ["gone before this watch began, never probed: checkpoint 20, 40, 60"]
    shutil.rmtree(run)
    record(run, "start", "checkpoint-30", "checkpoint-80")
    save(run, 80, state=state)
    watcher().once()
    assert [row for row in states(run) if row[1] == "missed"] == [("checkpoint-30", "missed")]


def test_save_steps_say_nothing_where_they_did_not_decide(run, watcher):
    save(run, 33)
    save(run, 66, state=json.dumps({"global_step": 66, "save_steps": 22, "max_steps": 100}).encode())
    assert watcher().once() and not any(state == "missed" for _, state in states(run))


def test_a_resumed_run_that_loses_a_step_again_is_missed_again(run, watcher):
    record(run, "start", "checkpoint-20")
    watcher().once()
    time.sleep(0.01)
    later = time.time() + 100  # the next segment begins well after what the ledger knows
    events = [{"step": 0, "kind": "resume"}, {"step": 20, "kind": "checkpoint"}]
    with open(run / "obs" / "events.jsonl", "a") as file:
        file.writelines(json.dumps({**event, "time": later, "segment": 1}) + "\n" for event in events)
    watcher().once()
    assert states(run) == [("checkpoint-20", "missed")] * 2


def test_a_done_checkpoint_that_is_seen_half_deleted_is_neither_missed_nor_abandoned(run, watcher):
    folder = save(run, 20)
    one = watcher()
    one.once()
    (folder / "adapter_model.safetensors").unlink()
    one.once()
    record(run, "start", "end")
    one.once()
    shutil.rmtree(folder)
    one.once()
    assert states(run) == [("checkpoint-20", "taken"), ("checkpoint-20", "done")]


# ---- the same, or another? --------------------------------------------------------------------------------------


def test_touched_and_copied_is_the_same(run, watcher, probes):
    folder = save(run, 20)
    watcher().once()
    let_age(folder, 50)
    watcher().once()
    shutil.copytree(folder, run / "copy")
    shutil.rmtree(folder)
    (run / "copy").rename(folder)
    assert watcher().once() and probes.names == ["checkpoint-20"]


def test_a_resumed_run_that_saves_the_step_again_with_other_content_is_another(run, watcher, probes):
    save(run, 20, b"\1")
    watcher().once()
    shutil.rmtree(run / "checkpoint-20")
    save(run, 20, b"\2")
    watcher().once()
    assert len(probes.names) == 2 and probes.weights[0] != probes.weights[1]


def test_another_suite_probes_anew_and_again_probes_again(run, watcher, probes):
    save(run, 20)
    watcher().once(), watcher("6" * 64).once(), watcher().once()
    assert len(probes.names) == 2
    one = watcher(again=True, recorded=lambda taken: True)
    one.once(), one.once()
    assert len(probes.names) == 3


def test_the_final_model_equal_to_the_last_checkpoint_is_probed_once(run, watcher, probes, tmp_path):
    folder = save(run, 20)
    for file in folder.iterdir():
        shutil.copy(file, run / file.name)
    config = {"r": 8, "peft_type": "LORA"}  # another spelling of the same
    (run / "adapter_config.json").write_text(json.dumps(config, indent=2))
    weights = (run / "adapter_model.safetensors").read_bytes()
    header = json.loads(weights[8 : 8 + weights[0]])
    new = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    (run / "adapter_model.safetensors").write_bytes(len(new).to_bytes(8, "little") + new + weights[8 + weights[0] :])
    assert watcher().once() and probes.names == ["checkpoint-20"]
    assert states(run)[-2:] == [("final", "done"), ("checkpoint-20", "done")]
    assert why(run, "final") == "same content as checkpoint-20"


def test_another_final_model_is_probed_but_not_that_of_an_older_training(run, watcher, probes):
    (run / "x").mkdir()
    for file in save(run / "x", 30, b"\x09").iterdir():
        file.rename(run / file.name)
    shutil.rmtree(run / "x")
    record(run, "start")
    assert watcher().once() and probes.names == []  # the training goes on
    time.sleep(0.01)
    record(run, "end")
    assert watcher().once() and probes.names == []  # older than its start
    (run / "trainer_state.json").write_text('{"global_step": 30}')
    assert watcher().once() and probes.names == ["final"]


# ---- failures ---------------------------------------------------------------------------------------------------


def test_a_failure_is_tried_again_and_given_up_after_the_limit(run, watcher, probes):
    save(run, 20), save(run, 40)
    probes.raises = [ValueError("bad\nadapter"), None, ValueError("bad"), ValueError("bad")]
    one = watcher()
    assert not one.once() and probes.names == ["checkpoint-40"] and one.waits
    assert one.unprobed == {"checkpoint-20": "ValueError: bad adapter"}
    assert not one.once() and one.once() and not one.waits
    assert states(run)[-1] == ("checkpoint-20", "failed") and one.unprobed == {
        "checkpoint-20": "ValueError: bad (3 times)"
    }
    assert watcher().once() and probes.names == ["checkpoint-40"]


def test_a_server_that_is_down_costs_no_try(run, watcher, probes, said):
    save(run, 20), save(run, 40)
    probes.raises = [Later("no server")] * 9
    one = watcher(retry_limit=2)
    for _ in range(9):
        assert not one.once()
    assert one.once() and probes.names == ["checkpoint-20", "checkpoint-40"]
    assert states(run).count(("checkpoint-20", "retry")) == 1 and said == ["checkpoint-20 has to wait: no server"]


def test_a_watch_waits_for_its_server(run, watcher, probes):
    record(run, "start", "crash")
    save(run, 20)
    probes.raises = [Later("down"), Later("down"), ValueError("once")]
    Watching(watcher()).join()
    assert probes.names == ["checkpoint-20"] and states(run)[-1] == ("checkpoint-20", "done")


def test_no_room_is_one_line_and_no_end(run, watcher, probes, said, monkeypatch):
    save(run, 20)
    usage = shutil.disk_usage(run)
    monkeypatch.setattr(copies.shutil, "disk_usage", lambda path: usage._replace(free=1 << 20))
    one = watcher()
    assert not one.once() and "not enough room" in one.unprobed["checkpoint-20"] and len(said) == 1
    assert states(run) == [("checkpoint-20", "retry")]
    monkeypatch.undo()
    assert watcher().once() and probes.names == ["checkpoint-20"]


def test_hard_links_and_a_file_overwritten_in_place(run, watcher, probes, monkeypatch):
    monkeypatch.setattr(copies, "LINK_BYTES", 8)
    folder = save(run, 20)
    weights = folder / "adapter_model.safetensors"
    weights.chmod(0o600)
    linked = []
    probes.meanwhile = lambda taken: linked.append(taken.linked)
    assert watcher(hard_links=True).once() and list(linked[0]) == ["adapter_model.safetensors"]
    assert stat.S_IMODE(weights.stat().st_mode) == 0o600 and weights.stat().st_nlink == 1

    shutil.rmtree(folder)
    save(run, 20, b"\5")
    probes.meanwhile = lambda taken: (folder / "adapter_model.safetensors").write_bytes(safetensors(4, b"\6"))
    one = watcher(hard_links=True)
    one.once()
    assert states(run)[-1] == ("checkpoint-20", "missed") and "in place" in why(run, "checkpoint-20")


# ---- kill -9, the lock ------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from llamafactory_obs.probe import attempt, collect, copies, watcher
from llamafactory_obs.probe.ledger import Ledger
run, window = Path(sys.argv[1]), sys.argv[2]
def die(*args, **more): os.kill(os.getpid(), signal.SIGKILL)
def probe(taken):
    if window == "probing": die()
    with open(run.parent / "results", "a") as file: file.write(taken.content + "\\n")
    if window == "recorded": die()
if window == "copying": copies.content_of = die
if window == "taken": attempt.Attempts.make = die
if window == "done": attempt.discard = die
if window == "unwritten": collect.Ledger.put = Ledger.put = die
watcher.Watcher(run, "5" * 64, probe, say=print).once()
"""


@pytest.mark.parametrize("window", ["copying", "unwritten", "taken", "probing", "recorded", "done"])
@pytest.mark.parametrize("rotated", [False, True])
def test_kill_9_in_each_window(run, watcher, probes, window, rotated):
    folder, results = save(run, 20), run.parent / "results"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(run), window], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    if rotated:
        shutil.rmtree(folder)
        record(run, "start", "checkpoint-20")
    recorded = results.read_text().split() if results.exists() else []
    assert watcher(recorded=lambda taken: taken.content in recorded).once()
    nothing_taken = window in ("copying", "unwritten")
    times = len(recorded) + len(probes.names)
    assert times == (0 if rotated and nothing_taken else 1)
    assert states(run)[-1] == ("checkpoint-20", "missed" if rotated and nothing_taken else "done")
    left = run / "obs" / "probe" / "copies" / SUITE[:8]
    assert not left.exists() or not any(left.iterdir())


def test_a_damaged_copy_is_taken_again_or_missed(run, watcher, probes):
    folder = save(run, 20)
    probes.raises = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        watcher().once()
    [copy] = (run / "obs" / "probe" / "copies" / SUITE[:8]).iterdir()
    (copy / "adapter_model.safetensors").write_bytes(safetensors(4, b"\x11"))
    assert watcher().once() and probes.weights == [(folder / "adapter_model.safetensors").read_bytes()]
    assert ("checkpoint-20", "missed") in states(run) and states(run)[-1] == ("checkpoint-20", "done")


def test_a_torn_ledger_is_cut_and_goes_on(run, watcher, probes):
    save(run, 20)
    watcher().once()
    with open(run / "obs" / "probe" / "ledger.jsonl", "ab") as file:
        file.write(b'{"time": 1, "state": "ta')
    save(run, 40)
    assert watcher().once() and probes.names == ["checkpoint-20", "checkpoint-40"]
    assert len(states(run)) == 4


def test_a_full_disk_does_not_forget_what_is_done(run, tmp_path, monkeypatch, said):
    ledger = Ledger(tmp_path, SUITE, said.append)
    real = os.write
    monkeypatch.setattr(os, "write", lambda *args: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    ledger.put("missed", "checkpoint-20", 20, "x")
    ledger.put("missed", "checkpoint-40", 40, "x")
    assert len(said) == 1 and "No space left" in said[0]
    monkeypatch.setattr(os, "write", real)
    ledger.put("missed", "checkpoint-60", 60, "x")
    ledger.close()
    assert {entry.key for entry in Ledger(tmp_path, SUITE, said.append).all()} == {
        Key(step, f"checkpoint-{step}", "", SUITE) for step in (20, 40, 60)
    }


def test_the_second_watcher_says_so_and_leaves(run, watcher, probes):
    save(run, 20)
    refused = []

    def second(taken):
        with pytest.raises(ConfigError, match=rf"another probe watches .*run \(pid {os.getpid()}\)"):
            watcher().once()
        refused.append(taken.name)

    probes.meanwhile = second
    assert watcher().once() and refused == ["checkpoint-20"]
    probes.meanwhile = lambda taken: None
    assert watcher().once()


# ---- the watch --------------------------------------------------------------------------------------------------


def test_it_starts_before_the_folder_exists_and_ends_by_the_record(run, watcher, probes):
    run.rmdir()
    watch = Watching(watcher())
    eventually(lambda: (run / "obs" / "probe" / "lock").exists())
    record(run, "start")
    save(run, 20)
    eventually(lambda: probes.names == ["checkpoint-20"])
    record(run, "oom", "retry")  # the Trainer goes on with a smaller batch
    time.sleep(0.1)
    assert watch.goes_on
    save(run, 40)
    for file in (run / "checkpoint-40").iterdir():
        if file.name != "trainer_state.json":
            shutil.copy(file, run / file.name)
    record(run, "checkpoint-40", "end")
    eventually(lambda: len(probes.names) == 2)
    time.sleep(0.1)
    assert watch.goes_on  # the state of the final model is not there yet
    shutil.copy(run / "checkpoint-40" / "trainer_state.json", run / "trainer_state.json")
    watch.join()
    assert probes.names == ["checkpoint-20", "checkpoint-40"] and ("final", "done") in states(run)


def test_older_segments_do_not_end_it(run, watcher, probes):
    record(run, "start", "checkpoint-20", "end")
    watch = Watching(watcher(since_segment=1))
    save(run, 40, state=json.dumps({"global_step": 40, "save_steps": 20, "max_steps": 100}).encode())
    eventually(lambda: probes.names == ["checkpoint-40"])
    assert watch.goes_on
    record(run, "resume", "interrupted", segment=1)
    watch.join()
    assert not any(state == "missed" for _, state in states(run))


def test_it_ends_when_the_training_process_is_gone(run, watcher, probes):
    training = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    watch = Watching(watcher(parent=training.pid))
    save(run, 20)
    eventually(lambda: probes.names == ["checkpoint-20"])
    assert watch.goes_on
    save(run, 40, state=b"")
    training.kill()  # not waited for: a zombie is gone as well
    watch.join()
    training.wait()
    assert states(run)[-1] == ("checkpoint-40", "abandoned")


def test_it_does_not_end_before_the_last_save_is_accounted_for(run, watcher, probes):
    record(run, "start", "crash")
    save(run, 20, state=b"")  # just now: it may still be written
    deleted = save(run, 40)
    (deleted / "adapter_model.safetensors").unlink()  # and this one is being deleted
    one = watcher()
    watch = Watching(one)
    eventually(lambda: len(one.incomplete) == 2)
    shutil.rmtree(deleted)
    watch.join()
    assert sorted(states(run)) == [("checkpoint-20", "abandoned"), ("checkpoint-40", "missed")]


def test_a_folder_that_is_being_removed_is_left_alone(run, watcher):
    watch = Watching(watcher())
    save(run, 20)
    eventually(lambda: ("checkpoint-20", "done") in states(run))
    time.sleep(0.1)
    shutil.rmtree(run / "obs")
    time.sleep(0.3)
    assert sorted(path.name for path in run.iterdir()) == ["checkpoint-20"]
    eventually(lambda: (run / "obs" / "probe" / "ledger.jsonl").exists())
    record(run, "start", "crash")
    watch.join()
    assert ("checkpoint-20", "done") in states(run)  # known, though the file was removed: not probed again


def test_removed_and_made_again(run, watcher, probes, said):
    watch = Watching(watcher())
    save(run, 20)
    eventually(lambda: probes.names == ["checkpoint-20"])
    while run.exists():
        shutil.rmtree(run, ignore_errors=True)
    time.sleep(0.1)
    assert watch.goes_on
    save(run, 20, b"\x33")
    eventually(lambda: len(probes.names) == 2)
    with pytest.raises(ConfigError):
        watcher().once()  # the new folder's lock is held
    record(run, "start", "crash")
    watch.join()
    assert any("removed and made again" in line for line in said)


def test_ctrl_c_ends_it_cleanly_and_loses_nothing(run, watcher, probes):
    save(run, 20)
    probes.raises = [KeyboardInterrupt()]
    watcher().watch()
    assert states(run) == [("checkpoint-20", "taken")]
    assert watcher().once() and probes.names == ["checkpoint-20"]


@pytest.mark.parametrize("broken", ["silent", "limit", "absent"])
def test_without_events_it_polls(run, watcher, probes, said, monkeypatch, broken):
    def start(self):
        if broken == "limit":
            raise OSError(28, "inotify watch limit reached")
        if broken == "absent":
            raise ImportError("watchdog")

        class Silent:
            is_alive = staticmethod(lambda: True)
            stop = staticmethod(lambda: None)
            join = staticmethod(lambda timeout: None)

        return Silent()

    monkeypatch.setattr(Wakeups, "_start", start)
    watch = Watching(watcher())
    save(run, 20)
    eventually(lambda: probes.names == ["checkpoint-20"])
    record(run, "start", "crash")
    watch.join()
    assert len([line for line in said if "looking every few seconds" in line]) == (broken != "silent")


def test_events_wake_it_and_name_what_came_and_went(run, watcher, probes):
    pytest.importorskip("watchdog")
    one = watcher(poll_s=30.0)
    watch = Watching(one)
    eventually(lambda: (run / "obs" / "probe" / "ledger.jsonl").exists())
    time.sleep(0.3)
    save(run, 20)
    eventually(lambda: probes.names == ["checkpoint-20"], timeout=5.0)
    (run / "checkpoint-40").mkdir()
    (run / "checkpoint-40").rmdir()
    eventually(lambda: ("checkpoint-40", "missed") in states(run), timeout=5.0)
    record(run, "start", "crash")
    one._wake.set()  # the record is only polled
    watch.join(5.0)


def test_an_error_in_the_collecting_thread_is_not_swallowed(run, watcher, monkeypatch):
    monkeypatch.setattr(Watcher, "_look", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        watcher().watch()


def test_a_proof_made_before_a_change_is_not_trusted(run, tmp_path):
    folder = save(run, 20)
    proof = prove(folder, 20)
    (folder / "tokenizer.json").write_text("{ }")
    with pytest.raises(copies.Lost):
        copies.take(folder, proof, tmp_path / "copies", hard_links=False)
    assert not any((tmp_path / "copies").iterdir())
