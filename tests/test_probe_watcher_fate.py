"""The watcher: what becomes of checkpoints that are gone, come again, fail or cannot be taken."""

import json
import shutil
import stat
import time

import pytest
from probe_folder import Watching, let_age, probes, record, run, said, save, states, watcher, why  # noqa: F401
from test_probe_complete import safetensors

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.probe import copies
from llamafactory_obs.probe.ledger import Later


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
    assert one.once() and probes.names == ["checkpoint-40"], "given up by this process"
    assert watcher().once() and probes.names == ["checkpoint-40", "checkpoint-20"], "a new call may have other options"


def test_done_counts_only_where_its_results_are(run, watcher, probes):
    """A new training in the same folder archives the record; a reproducible one saves the same weights again."""
    save(run, 20), save(run, 40)
    assert watcher().once()
    assert watcher(known=lambda content: False).once()
    assert probes.names == ["checkpoint-20", "checkpoint-40"] * 2
    assert watcher(known=lambda content: True).once() and len(probes.names) == 4


def test_a_wrong_call_is_no_fault_of_the_checkpoint(run, watcher, probes):
    save(run, 20)
    probes.raises = [ConfigError("--device: 'zzz' is no torch device")]
    with pytest.raises(ConfigError):
        watcher().once()
    assert states(run)[-1] == ("checkpoint-20", "taken")
    assert watcher().once() and probes.names == ["checkpoint-20"]


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
