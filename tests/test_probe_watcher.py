"""The watcher: what is probed, in which order, and what rotation cannot take away."""

import os
import shutil
import stat

from probe_folder import SUITE, Watching, eventually, let_age, probes, record, run, said, save, states, watcher, why  # noqa: F401
from test_probe_complete import adapter, safetensors

from llamafactory_obs.probe import copies
from llamafactory_obs.probe.complete import UNREST_S


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
    watcher(latest_only=True).once()
    assert probes.names == ["checkpoint-60"]
    watcher().once()  # asked for now
    assert probes.names == ["checkpoint-60", "checkpoint-20", "checkpoint-40"]


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
