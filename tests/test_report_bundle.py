"""The bundle: all that belongs to a run, hashed, without secrets, the same bytes each time; and its check."""

import hashlib
import io
import json
import shutil
import tarfile
import zipfile

import pytest
import yaml
from summary_record import BEGIN, Record

from llamafactory_obs import cli
from llamafactory_obs.record.gates import gates_file
from llamafactory_obs.summary import summarize

SECRET = "hf_abcdefghijklmnopqrstuvwxyz"


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """An output folder as a training leaves it, with a data set, weights, secrets and failed samples."""
    folder = tmp_path_factory.mktemp("bundle")
    data = folder / "data"
    data.mkdir()
    rows = [{"instruction": "a", "output": "b"}, {"instruction": "c", "output": "d", "system": "e"}]
    (data / "orders.json").write_text(json.dumps(rows), encoding="utf-8")
    (data / "README.md").write_text("---\nlicense: apache-2.0\n---\n# orders\n")
    record = Record(folder / "run")
    content = (data / "orders.json").read_bytes()
    entry = {"name": "orders", "role": "train", "source": "file", "location": "orders.json"}
    entry["entry"] = {"file_name": "orders.json", "formatting": "sharegpt"}
    record.run["data"] |= {"datasets": [entry]}
    files = [{"file": "orders.json", "bytes": len(content), "sha256": sha(content)}]
    record.run["data"]["files"] = {"orders": {"sha256": "f" * 64, "files": files}}
    record.run["config"]["resolved"]["data_args"]["dataset_dir"] = str(data)
    record.run["config"]["given"] |= {"learning_rate": 1e-4, "hub_token": SECRET}
    record.start()
    record.steps(1, 10)
    record.event(3, "alert", "labels_moved", f"the token is {SECRET}", name="samples", level="error")
    record.event(5, "note", "tracker", "https://box/?token=s3cr3t,1 and more", name="vram")
    record.event(10, "end", "training ended")
    sample = {"row": 4, "sources": [["orders", 0]], "tokens": 7, "supervised": 2}
    record.more["samples"] = [
        {"step": step, "time": BEGIN, "segment": 0, "rank": 0, "micro_batches": [[sample]]} for step in (3, 4)
    ]
    record.more["webhook-unsent"] = [{"url": "https://hooks.slack.com/services/T/B/x"}]
    row = {"time": BEGIN, "suite": "s", "errors": ["x"], "output": "no"}
    record.more["probes"] = [
        {"step": 10, "checkpoint": "checkpoint-10", "probe": name, "passed": passed} | row
        for name, passed in (("good", True), ("bad", False))
    ]
    output = record.write()
    (output / "adapter_model.safetensors").write_bytes(b"weights")
    (output / "training_args.bin").write_bytes(b"pickle")
    (output / "all_results.json").write_text(json.dumps({"train_loss": 2.5, "train_runtime": 20.1}))
    (output / "trainer_log.jsonl").write_text('{"current_steps": 1, "loss": 2.9}\n')
    (output / "obs" / "control").mkdir()
    (output / "obs" / "control" / "job.json").write_text("{}")
    gate = {"name": "mask", "status": "pass", "checks": [], "fix": "", "time": BEGIN - 5}
    gates_file(output).write_text(json.dumps({"given": {}, "gates": [gate]}))
    return output


@pytest.fixture(scope="module", params=["tar.gz", "zip"])
def bundle(run, request):
    file = run.parent / f"one.{request.param}"
    assert cli.main(["report", str(run), "--bundle", str(file)]) == 0
    return file


def contents(file) -> dict[str, bytes]:
    """Read by the standard library alone."""
    if file.name.endswith(".zip"):
        with zipfile.ZipFile(file) as archive:
            found = {name: archive.read(name) for name in archive.namelist()}
    else:
        with tarfile.open(file) as archive:
            found = {one.name: archive.extractfile(one).read() for one in archive}
    return {name.partition("/")[2]: content for name, content in found.items()}


def test_it_holds_all_that_belongs_to_the_run(run, bundle):
    found = contents(bundle)
    manifest = json.loads(found.pop("manifest.json"))
    assert {name: one["sha256"] for name, one in manifest["files"].items()} == {n: sha(c) for n, c in found.items()}
    wanted = {"config/run.yaml", "config/resolved.json", "data_card.json", "sheet.md", "sheet.html", "all_results.json"}
    wanted |= {"trainer_log.jsonl", "failed/probes.jsonl", "failed/samples.jsonl"}
    wanted |= {f"obs/{name}.jsonl" for name in ("steps", "events", "samples", "probes")}
    assert set(found) == wanted | {"obs/run.json", "obs/preflight.json"}
    assert manifest["weights"]["files"][0]["sha256"] == sha(b"weights")
    assert [one["file"] for one in manifest["weights"]["files"]] == ["adapter_model.safetensors"]
    assert yaml.safe_load(found["config/run.yaml"])["learning_rate"] == 1e-4
    assert [json.loads(line)["probe"] for line in found["failed/probes.jsonl"].splitlines()] == ["bad"]
    (failed,) = map(json.loads, found["failed/samples.jsonl"].splitlines())
    assert failed["step"] == 3 and failed["samples"]["0"][0][0]["row"] == 4
    assert found["obs/steps.jsonl"] == (run / "obs" / "steps.jsonl").read_bytes(), "byte for byte"


def test_the_data_card_counts_what_is_still_the_same_file(run, bundle):
    (card,) = json.loads(contents(bundle)["data_card.json"])["datasets"]
    assert (card["rows"], card["columns"]) == (2, ["instruction", "output", "system"])
    assert (card["licence"], card["tokens_seen"], card["unknown"]) == ("apache-2.0", 14, {})
    data = run.parent / "data" / "orders.json"
    before = data.read_bytes()
    data.write_bytes(before + b" ")
    other = run.parent / f"other-{bundle.name}"
    assert cli.main(["report", str(run), "--bundle", str(other)]) == 0
    data.write_bytes(before)
    (card,) = json.loads(contents(other)["data_card.json"])["datasets"]
    assert card["rows"] is None and "another one" in card["unknown"]["rows"]


def test_no_secret_is_in_it_and_every_line_is_still_json(bundle):
    found = contents(bundle)
    everything = b"".join(found.values())
    assert SECRET.encode() not in everything and b"s3cr3t" not in everything and b"slack" not in everything
    events = [json.loads(line) for line in found["obs/events.jsonl"].splitlines()]
    assert [event["text"] for event in events if event["kind"] in ("alert", "note")] == [
        "the token is ***",
        "https://box/?token=*** and more",
    ]
    assert json.loads(found["manifest.json"])["secrets_replaced"]["obs/events.jsonl"] == 2


def test_the_same_run_gives_the_same_bytes(run, bundle, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    again = run.parent / f"again.{bundle.name.partition('.')[2]}"
    monkeypatch.setattr("time.time", lambda: 2e9)
    assert cli.main(["report", str(run), "--bundle", str(again)]) == 0
    assert again.read_bytes() == bundle.read_bytes()


def test_unpacked_it_is_a_run_for_every_verb(run, bundle, tmp_path):
    shutil.unpack_archive(bundle, tmp_path)
    found, before = summarize(tmp_path / "first"), summarize(run)
    assert (found.steps, found.machine_hours, found.gates) == (before.steps, before.machine_hours, before.gates)
    assert [one.ended for one in found.sessions] == [one.ended for one in before.sessions] == ["stopped"]


def test_its_check_says_in_one_line_that_it_is_whole(run, bundle, capsys):
    assert cli.main(["report", "--verify", str(bundle), "--lang", "en"]) == 0
    out = capsys.readouterr().out
    digest = sha(contents(bundle)["manifest.json"])
    assert out.count("\n") == 1 and f"manifest sha256 {digest[:16]}" in out and "whole" in out
    assert cli.main(["report", "--verify", str(bundle), str(run), "--lang", "en"]) == 0
    assert "the same as in" in capsys.readouterr().out
    weights = run / "adapter_model.safetensors"
    weights.write_bytes(b"Weights")
    assert cli.main(["report", "--verify", str(bundle), str(run), "--json"]) == 1
    assert "adapter_model.safetensors" in json.loads(capsys.readouterr().out)["weights_why"]
    weights.write_bytes(b"weights")


def change(content: dict[str, bytes], how: str) -> dict[str, bytes]:
    if how == "changed":
        return content | {"obs/steps.jsonl": content["obs/steps.jsonl"].replace(b"2.9", b"2.1")}
    if how == "missing":
        return {name: one for name, one in content.items() if name != "obs/steps.jsonl"}
    if how == "added":
        return content | {"obs/more.jsonl": b"{}"}
    return {name: one for name, one in content.items() if name != "manifest.json"}


@pytest.mark.parametrize(
    ("how", "why"),
    [("changed", "was changed"), ("missing", "is missing"), ("added", "not in the manifest"), ("none", "no manifest")],
)
def test_a_changed_one_is_not_whole(run, bundle, tmp_path, capsys, how, why):
    content = change(contents(bundle), how)
    file = tmp_path / bundle.name
    if bundle.name.endswith(".zip"):
        with zipfile.ZipFile(file, "w") as archive:
            for name, one in content.items():
                archive.writestr(f"first/{name}", one)
    else:
        with tarfile.open(file, "w:gz") as archive:
            for name, one in content.items():
                entry = tarfile.TarInfo(f"first/{name}")
                entry.size = len(one)
                archive.addfile(entry, io.BytesIO(one))
    assert cli.main(["report", "--verify", str(file), "--lang", "en"]) == 1
    out = capsys.readouterr().out
    assert "NOT whole" in out and why in out and out.count("\n") == 1


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "flipped"])
def test_a_damaged_archive_is_no_traceback(bundle, tmp_path, capsys, damage):
    content = bundle.read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes(255 - byte for byte in content[middle : middle + 64]) + content[middle + 64 :]
    made = {"cut": content[:middle], "empty": b"", "text": b"hello", "flipped": flipped}[damage]
    file = tmp_path / bundle.name
    file.write_bytes(made)
    assert cli.main(["report", "--verify", str(file), "--lang", "en"]) == 1
    assert "NOT whole" in capsys.readouterr().out


def test_weights_are_compared_with_a_folder_that_is_there(bundle, tmp_path, capsys):
    assert cli.main(["report", "--verify", str(bundle), str(tmp_path / "none")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "no such folder" in err and err.count("\n") == 1


def test_half_a_character_in_an_answer_is_no_crash(tmp_path):
    record = Record(tmp_path / "run")
    record.start()
    record.steps(1, 5)
    row = {"step": 5, "time": BEGIN, "suite": "s", "checkpoint": "checkpoint-5", "probe": "a", "passed": False}
    record.more["probes"] = [row | {"errors": ["x"], "output": "half \ud83d"}]
    file = tmp_path / "a.zip"
    assert cli.main(["report", str(record.write()), "--bundle", str(file), "--html", str(tmp_path / "a.html")]) == 0
    assert "half" in contents(file)["failed/probes.jsonl"].decode()


def test_without_final_weights_the_newest_checkpoint_is_named(tmp_path):
    record = Record(tmp_path / "run")
    record.start()
    record.steps(1, 20)
    output = record.write()
    for step in (5, 10):
        (output / f"checkpoint-{step}").mkdir()
        (output / f"checkpoint-{step}" / "model-00001-of-00001.safetensors").write_bytes(b"%d" % step)
    file = tmp_path / "a.tar.gz"
    assert cli.main(["report", str(output), "--bundle", str(file)]) == 0
    weights = json.loads(contents(file)["manifest.json"])["weights"]
    assert (weights["folder"], weights["step"]) == ("checkpoint-10", 10)
    assert weights["files"][0]["sha256"] == sha(b"10")
