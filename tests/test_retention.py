"""Which checkpoints are kept, and how one is deleted: rules on plain values, then on real checkpoints on disk."""

import json
import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from checkpoint_folder import edit, plant

from llamafactory_obs.callbacks.aside import Aside
from llamafactory_obs.callbacks.keep_best import KeepBest
from llamafactory_obs.callbacks.remove_checkpoint import leftovers, move_aside, remove
from llamafactory_obs.callbacks.retention import Candidate, TopK, parse_top_k, plan
from llamafactory_obs.callbacks.verify_save import Wanted, identity
from llamafactory_obs.probe.scan import find_checkpoints


def one(step, value=None, good=True, resumes=True, own=True, saved_at=None) -> Candidate:
    return Candidate(f"checkpoint-{step}", step, step if saved_at is None else saved_at, good, resumes, own, value)


def kept(candidates, k=2, protected=(), mode="min") -> list[int]:
    gone = plan(candidates, TopK(k, "eval_loss", mode), protected).delete
    return [c.step for c in candidates if c.name not in gone]


def test_the_best_and_the_newest():
    run = [one(2, 5.0), one(4, 1.0), one(6, 3.0), one(8, 2.0), one(10, 4.0)]
    assert kept(run) == [4, 8, 10]
    assert kept(run, mode="max") == [2, 10]
    assert kept(run, k=9) == [2, 4, 6, 8, 10]
    assert kept(run, protected=["checkpoint-6"]) == [4, 6, 8, 10], "load_best_model_at_end"


def test_what_is_never_chosen():
    assert kept([one(2), one(4), one(6)], k=1) == [2, 4, 6], "nothing was evaluated: nothing is known to be worse"
    assert kept([one(2, 5.0), one(4, 9.0, own=False), one(6, 4.0)], k=1) == [4, 6], "of another run"
    assert kept([one(2, 5.0), one(4, 1.0, good=False), one(6, 4.0)], k=1) == [4, 6], "broken, and counts as nothing"
    assert kept([one(2, 5.0), one(4, 9.0, good=False)], k=1) == [2, 4], "the only good one"
    assert kept([one(2, 5.0), one(4, 1.0), one(6, 9.0, good=False)], k=1) == [4, 6], "4 is best and newest good"
    newest_warm = [one(2, 1.0), one(4, 5.0), one(6, 6.0, resumes=False)]
    assert 4 in kept(newest_warm, k=1), "the newest that resumes"
    assert kept([one(2, 5.0, saved_at=9), one(40, 6.0, saved_at=1), one(1, 0.5)], k=1) == [2, 40, 1], "two newest"
    assert kept([one(2, 1.0, resumes=False), one(4, 2.0, resumes=False)], k=1) == [2, 4], "save_only_model"


def test_what_was_not_evaluated_goes_first():
    run = [one(2), one(4, 1.0), one(6), one(8, 2.0), one(10)]
    found = plan(run, TopK(2), ())
    assert sorted(found.delete) == ["checkpoint-2", "checkpoint-6"]
    assert "was not evaluated at step 2" in found.delete["checkpoint-2"]


def test_options():
    assert parse_top_k({}) == TopK(3, "eval_loss", "min")
    assert parse_top_k({"metric": "eval_accuracy"}).mode == "max"
    assert TopK(1, "loss").value_in({"eval_loss": 2.0}) == 2.0
    assert TopK(1, "eval_loss").value_in({"eval_loss": float("nan")}) is None
    assert parse_top_k(None) is None


# ---- on disk ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(llamafactory, model, data, tmp_path_factory):
    """One real checkpoint."""
    from llamafactory.train.tuner import run_exp
    from tiny import tiny_config

    out = tmp_path_factory.mktemp("real") / "out"
    run_exp(tiny_config(model, data, out, finetuning_type="lora", max_steps=2))
    return out / "checkpoint-2"


class Run:
    """An output folder with a record, its checkpoints, and retention at work on them."""

    def __init__(self, folder: Path, real: Path, values: dict[int, float | None], k: int = 1):
        self.folder, self.told_, self.rows = folder, [], []
        record = folder / "obs"
        record.mkdir(parents=True)
        began = time.time() - 7200
        (record / "run.json").write_text(json.dumps({"segments": [{"started": began}]}))
        lines = []
        for step, value in values.items():
            place = plant(real, folder, step)
            rows = [{"step": step, "eval_loss": value}] if value is not None else []
            edit(place / "trainer_state.json", lambda state, rows=rows: state.update(log_history=rows))
            when = began + 10 * step
            os.utime(place / "trainer_state.json", (when, when))
            lines.append(json.dumps({"kind": "checkpoint", "step": step, "time": when}))
        (record / "events.jsonl").write_text("\n".join(lines) + "\n")
        self.state = SimpleNamespace(log_history=[], best_model_checkpoint=None, global_step=0)
        self.args = SimpleNamespace(output_dir=str(folder), save_total_limit=None)
        self.trainer = SimpleNamespace(state=self.state, args=self.args)
        self.callbacks, self.run, self.k = [], self, k

    def told(self, kind, title, text, **more):
        self.told_.append((kind, title, text))

    def wrote(self, row):
        self.rows.append(row)

    def work(self) -> list[int]:
        aside = Aside("test")
        keep = KeepBest(self, self.trainer, TopK(self.k), Wanted(), aside)
        keep.begin()
        keep.look()
        assert aside.wait(60)
        keep.off()
        aside.close()
        return [found.step for found in find_checkpoints(self.folder)]


def test_on_disk_the_rest_goes_whole_and_is_told(real, tmp_path):
    run = Run(tmp_path / "out", real, {2: 5.0, 4: 1.0, 6: 3.0, 8: 2.0})
    assert run.work() == [4, 8] and leftovers(run.folder) == []
    assert [title for _, title, _ in run.told_] == ["checkpoint deleted"] * 2
    assert "eval_loss 5 is above 1, the last of the best 1" in run.told_[0][2]
    assert [(row["step"], "deleted" in row) for row in run.rows] == [(2, True), (6, True)]


def test_values_are_rebuilt_and_an_evaluation_made_again_counts(real, tmp_path):
    run = Run(tmp_path / "out", real, {2: 1.0, 4: 2.0, 6: 3.0})
    history = [{"step": 2, "eval_loss": 1.0}, {"step": 2, "eval_loss": 9.0}, {"step": 4, "eval_loss": 2.0}]
    run.state.log_history = history
    assert run.work() == [4, 6], "2 was evaluated again, and was worse"
    other = Run(tmp_path / "other", real, {2: 1.0, 4: 2.0, 6: 3.0})
    other.state.log_history = [{"step": 2, "eval_loss": 9.0}]
    assert other.work() == [2, 6], "a value of another course of the run says nothing of this checkpoint"


def test_a_broken_newest_is_not_the_newest_good_one(real, tmp_path):
    run = Run(tmp_path / "out", real, {2: 1.0, 4: 5.0, 6: 4.0})
    file = run.folder / "checkpoint-6" / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    assert run.work() == [2, 4, 6]
    whole = Run(tmp_path / "whole", real, {2: 1.0, 4: 5.0, 6: 4.0})
    assert whole.work() == [2, 6], "the control"
    read = Run(tmp_path / "read", real, {2: 1.0, 4: 5.0, 6: 4.0})
    saved_at = identity(read.folder / "checkpoint-6")[3] / 1e9
    row = {"step": 6, "save_s": 1.0, "good": False, "saved_at": saved_at, "segment": 0}
    (read.folder / "obs" / "checkpoints.jsonl").write_text(json.dumps(row) + "\n")
    assert read.work() == [2, 4, 6], "the record knows that reading it back failed"


def test_what_is_not_of_this_run_or_no_folder_of_ours_stays(real, tmp_path):
    run = Run(tmp_path / "out", real, {2: 9.0, 4: 1.0, 6: 3.0})
    elsewhere = plant(real, tmp_path / "elsewhere", 3)
    (run.folder / "checkpoint-3").symlink_to(elsewhere)
    for name in ("checkpoint-5.bak", "tmp-checkpoint-5", "checkpoint-best"):
        shutil.copytree(elsewhere, run.folder / name)
    old = plant(real, run.folder, 1)
    long_ago = time.time() - 86400 * 9
    os.utime(old / "trainer_state.json", (long_ago, long_ago))
    assert run.work() == [1, 3, 4, 6]
    assert sum(1 for _ in elsewhere.iterdir()) > 5 and len(list(run.folder.glob("*checkpoint-*"))) == 7
    assert [row["step"] for row in run.rows] == [2]


def test_links_in_a_checkpoint_are_removed_and_not_followed(real, tmp_path):
    run = Run(tmp_path / "out", real, {2: 9.0, 4: 1.0})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("x")
    (run.folder / "checkpoint-2" / "link").symlink_to(tmp_path / "mine")
    assert run.work() == [4] and (tmp_path / "mine" / "file").is_file()


def test_the_best_of_transformers_and_its_rotation(real, tmp_path):
    run = Run(tmp_path / "out", real, {2: 9.0, 4: 1.0, 6: 3.0})
    run.state.best_model_checkpoint = str(run.folder / "checkpoint-2")
    run.args.save_total_limit = 2
    aside = Aside("test")
    keep = KeepBest(run, run.trainer, TopK(1), Wanted(), aside)
    assert "save_total_limit 2 is set aside" in keep.begin() and run.args.save_total_limit is None
    keep.look()
    assert aside.wait(60) and [found.step for found in find_checkpoints(run.folder)] == [2, 4, 6]
    keep.off()
    aside.close()
    assert run.args.save_total_limit == 2


def test_what_a_probe_has_not_taken_stays_until_it_has(real, tmp_path):
    run = Run(tmp_path / "out", real, {2: 9.0, 4: 8.0, 6: 1.0})
    probe = run.folder / "obs" / "probe"
    probe.mkdir()
    (probe / "pid").write_text(str(os.getpid()))
    ledger = [{"name": "checkpoint-2", "step": 2, "state": "taken", "time": time.time(), "content": "x"}]
    ledger += [{"name": "checkpoint-4", "step": 4, "state": "retry", "time": time.time(), "content": ""}]
    (probe / "ledger.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ledger))
    assert run.work() == [4, 6]
    assert any(title == "deletion waits" and "probe" in text for _, title, text in run.told_)
    (probe / "pid").write_text("999999999")
    assert run.work() == [6], "nobody probes any more"


def test_what_somebody_has_open_stays(real, tmp_path):
    run = Run(tmp_path / "out", real, {2: 9.0, 4: 1.0})
    with open(run.folder / "checkpoint-2" / "adapter_model.safetensors", "rb"):
        assert run.work() == [2, 4]
    assert run.work() == [4]


def test_a_name_is_taken_only_from_the_save_that_was_judged(real, tmp_path):
    folder = plant(real, tmp_path, 2)
    judged = identity(folder)
    os.utime(folder / "trainer_state.json", (1, 1))  # saved anew meanwhile
    assert move_aside(folder, judged) is None and folder.is_dir()
    aside = move_aside(folder, identity(folder))
    assert not folder.exists() and leftovers(tmp_path) == [aside] and find_checkpoints(tmp_path) == []
    from transformers.trainer_utils import get_last_checkpoint, sort_checkpoints

    assert get_last_checkpoint(str(tmp_path)) is None and sort_checkpoints(str(tmp_path)) == []
    assert remove(aside) == "" and not aside.exists()
