"""kill -9 at random moments of saving and deleting: a good checkpoint always remains and is found."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
KILLS = 10  # bench/checkpoint_guard.py --kills 100 makes more


def test_a_good_checkpoint_always_remains(llamafactory, tmp_path):
    script = Path(__file__).parent / "killed_saves.py"
    command = [sys.executable, str(script), str(tmp_path), str(KILLS), "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"kill"')]
    assert len(found) == KILLS
    for one in found:
        assert one["good"] or not one["before"], f"no good checkpoint is left: {one}"
        assert not one["before"] or one["good"][-1] >= one["before"][-1], f"training was thrown back: {one}"
    assert found[-1]["good"][-1] > KILLS // 2, "it went on in between"
    broken = [one for one in found if len([name for name in one["left"] if name[0] != "."]) > len(one["good"])]
    aside = [one for one in found if any(name.startswith(".deleting-") for name in one["left"])]
    assert broken or aside, "no kill fell into a save or a deletion: the test proves nothing"
    end = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"end"'))
    broken = {f"checkpoint-{step}" for step in end["good"]} ^ set(end["end"])
    assert len(end["good"]) <= 3 and not any(name.startswith(".") for name in broken), f"it has caught up: {end}"
