"""Two processes: one message, and one step at which both stop, whoever has found it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import tiny_config
from webhook_server import Service

from llamafactory_obs import load_record

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent


@pytest.fixture
def service():
    made = Service("dingtalk")
    yield made
    made.close()


@pytest.fixture
def two(llamafactory, model, data, tmp_path, service):
    def run(plan: dict, stop_on: list[str], fails: bool = False, **overrides):
        alerts = {"stop_on": stop_on, "webhook": {"url": service.url, "kind": "dingtalk"}}
        callbacks = [{"name": f"{HERE / 'alert_plants.py'}:Planted", "args": plan}]
        config = tiny_config(model, data, tmp_path / "two", callbacks=callbacks, obs={"alerts": alerts}, **overrides)
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
        command += [str(HERE / "ranks_worker.py"), "train", json.dumps(config)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "DISABLE_VERSION_CHECK": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode != 0) == fails, done.stdout[-1500:] + done.stderr[-3000:]
        return load_record(tmp_path / "two")

    return run


def saved(record) -> list[int]:
    return sorted(int(p.name.split("-")[1]) for p in record.folder.parent.glob("checkpoint-*"))


@pytest.mark.parametrize("rank", [None, 0])
def test_one_message_and_a_stop_at_one_step(two, service, rank):
    """Found by every rank, or by the first alone, as where it rests on that rank's own numbers."""
    record = two({"plan": "stalled:error:4", "rank": rank}, ["stalled"], max_steps=30, save_steps=1000)
    last = record.steps["step"][-1]
    assert 4 < last <= 8 and saved(record) == [last]
    assert [e["step"] for e in record.events if e["kind"] == "alert"] == [4]
    assert len([e for e in record.events if e["kind"] == "stop"]) == 1
    text = "\n".join(service.texts())
    assert text.count("stalled at step 4: 请降低学习率") == 1


def test_what_another_rank_alone_finds_stops_nobody_but_its_crash_is_told(two, service):
    plan = {"plan": "stalled:error:3", "rank": 1, "crash_at": 8}
    record = two(plan, ["stalled"], fails=True, max_steps=30, save_steps=1000)
    assert record.steps["step"][-1] >= 5, "no stop"
    told = service.texts()
    assert len(told) in (1, 2), "the other rank may still tell that it lost this one, before it is ended, too"
    assert sum("planted crash" in text for text in told) == 1
    assert all("[ALERT]" in text and "stalled" not in text for text in told)
