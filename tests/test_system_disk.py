"""Disks that do not hold the next checkpoint, or all that are to come."""

from system_run import Run

from llamafactory_obs.callbacks import disk_room
from llamafactory_obs.callbacks.disk_room import DiskRoom


class Room:
    """A folder of checkpoints and what `DiskRoom` says of so much free disk."""

    def __init__(self, tmp_path, monkeypatch, size_gib, **arguments):
        monkeypatch.setattr(disk_room, "_GIB", 1 << 10)  # a GiB of these tests is a KiB
        self.folder = tmp_path / "checkpoint-100"
        (self.folder / "inner").mkdir(parents=True, exist_ok=True)
        for name in ("a", "inner/b"):
            (self.folder / name).write_bytes(b"x" * (size_gib * 512))
        self.run = Run(tmp_path, **arguments)
        self.room = DiskRoom(self.run.trainer, 1.0)

    def judge(self, step, free):
        return [finding.name for finding in self.room.judge(step, free)]


def test_a_disk_that_does_not_hold_the_next_checkpoint(tmp_path, monkeypatch):
    room = Room(tmp_path, monkeypatch, 4, save_total_limit=2)
    assert room.judge(50, 3.0) == [], "how large one is, is not known yet"
    room.room.saved(str(room.folder), last=False)
    assert room.judge(101, 5.0) == []
    assert room.judge(102, 4.3) == ["checkpoint_will_not_fit"]
    assert room.judge(103, 4.3) == [] and room.judge(104, 9.0) == ["checkpoint_will_not_fit_over"]
    room.room.saved(str(room.folder), last=True)
    assert room.judge(1000, 1.5) == [], "no other follows"
    assert room.judge(1000, 0.9) == ["disk_nearly_full"]


def test_a_disk_that_does_not_hold_all_checkpoints_to_come(tmp_path, monkeypatch):
    room = Room(tmp_path, monkeypatch, 4)
    room.room.saved(str(room.folder), last=False)
    assert room.judge(101, 40.0) == [], "8 to come, 4.4 each"
    (finding,) = room.room.judge(102, 20.0)
    assert finding.name == "disk_too_small" and finding.suggest == {"save_total_limit": 3}
    epochs = Room(tmp_path, monkeypatch, 4, save_strategy="epoch")
    epochs.room.saved(str(epochs.folder), last=False)
    assert epochs.judge(102, 20.0) == []


def test_a_resume_knows_the_checkpoint_that_it_goes_on_from(tmp_path, monkeypatch):
    resumed = {"step": 100, "save_total_limit": 1}
    assert Room(tmp_path, monkeypatch, 4, **resumed).judge(101, 4.0) == ["checkpoint_will_not_fit"]
    given = Room(tmp_path, monkeypatch, 4, resume_from_checkpoint=str(tmp_path / "checkpoint-100"), **resumed)
    assert given.judge(101, 4.0) == ["checkpoint_will_not_fit"]
    assert Room(tmp_path, monkeypatch, 4, save_total_limit=1).judge(1, 4.0) == [], "another run's"


# ---- options --------------------------------------------------------------------------------------------------------
