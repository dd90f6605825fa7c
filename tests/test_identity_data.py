"""Which files a LlamaFactory run reads: real files, real dataset_info.json, chosen as LlamaFactory chooses."""

import hashlib
import json
import sys
from dataclasses import dataclass
from types import SimpleNamespace as Args

import pytest

from llamafactory_obs.identity.data import data_identity, file_job, template_sha256
from llamafactory_obs.identity.files import hash_files, hub_blob_sha256, sha256_file
from llamafactory_obs.identity.unknown import Unknowns


def sha(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("USE_MODELSCOPE_HUB", "USE_OPENMIND_HUB"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "one.json").write_bytes(b'[{"a": 1}]')
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "b.jsonl").write_bytes(b"{}\n")
    (tmp_path / "parts" / "a.jsonl").write_bytes(b"{ }\n")
    info = {
        "one": {"file_name": "one.json", "columns": {"prompt": "a"}},
        "many": {"file_name": "parts"},
        "gone": {"file_name": "gone.json"},
        "hub": {"hf_hub_url": "org/name", "ms_hub_url": "ms/name", "token": "s3cret"},
        "ms": {"ms_hub_url": "ms/name"},
        "cloud": {"cloud_file_name": "s3://bucket/x.json?token=abc"},
        "pictures": {"file_name": "one.json", "columns": {"images": "images"}},
        "empty": {},
    }
    (tmp_path / "dataset_info.json").write_text(json.dumps(info))
    return tmp_path


def ask(folder, **fields):
    unknown = Unknowns()
    args = Args(**{"dataset_dir": str(folder), "dataset": None, "template": "qwen", **fields})
    result = data_identity(args, unknown)
    return result, file_job(args, result["datasets"])(), {row["what"]: row["why"] for row in unknown.rows}


def test_files_and_folders_are_hashed(folder):
    result, files, _ = ask(folder, dataset=["one", "many"], cutoff_len=2047, mask_history=True, val_size=0.1)
    assert result["settings"]["cutoff_len"] == 2047 and result["settings"]["mask_history"] is True
    assert result["info_sha256"] == sha((folder / "dataset_info.json").read_bytes())
    assert [(row["name"], row["source"], row["location"]) for row in result["datasets"]] == [
        ("one", "file", "one.json"),
        ("many", "file", "parts"),
    ]
    assert result["datasets"][0]["entry"] == {"file_name": "one.json", "columns": {"prompt": "a"}}
    assert files["one"]["files"] == [
        {"file": "one.json", "bytes": 10, "sha256": sha(b'[{"a": 1}]'), "source": "content"}
    ]
    assert [row["file"] for row in files["many"]["files"]] == ["a.jsonl", "b.jsonl"]
    before = files["many"]["sha256"]
    (folder / "parts" / "a.jsonl").write_bytes(b"{x}\n")
    assert ask(folder, dataset="many")[1]["many"]["sha256"] != before


def test_names_in_one_text_and_an_eval_set(folder):
    result, files, _ = ask(folder, dataset="one, many", eval_dataset=["pictures"])
    assert [(row["name"], row["role"]) for row in result["datasets"]] == [
        ("one", "train"),
        ("many", "train"),
        ("pictures", "eval"),
    ]
    assert "images" in files["pictures"]["note"]


def test_what_lies_elsewhere_is_unknown_with_its_name(folder):
    result, files, unknown = ask(folder, dataset=["hub", "ms", "cloud", "gone", "nowhere", "empty"])
    assert [row["source"] for row in result["datasets"]] == ["hf_hub", "ms_hub", "cloud", "file", None, None]
    assert "org/name on hf_hub" in files["hub"]["unknown"] and "ms/name" in files["ms"]["unknown"]
    assert "gone.json" in files["gone"]["unknown"] and set(files["cloud"]) == {"unknown"}
    assert "not in dataset_info.json" in unknown["data.datasets.nowhere"] and "data.datasets.empty" in unknown
    text = json.dumps(result)
    assert "s3cret" not in text and "abc" not in text


def test_the_hub_is_chosen_by_the_environment(folder, monkeypatch):
    monkeypatch.setenv("USE_MODELSCOPE_HUB", "1")
    result, _, _ = ask(folder, dataset=["hub"])
    assert (result["datasets"][0]["source"], result["datasets"][0]["location"]) == ("ms_hub", "ms/name")


def test_online_remote_and_broken_infos(folder):
    result, _, _ = ask("ONLINE", dataset=["org/set"])
    assert result["datasets"][0]["source"] == "hf_hub" and result["datasets"][0]["location"] == "org/set"
    assert "on the hub" in ask("REMOTE:org/info", dataset=["x"])[2]["data.info_sha256"]
    (folder / "dataset_info.json").write_text("{broken")
    assert "JSON" in ask(folder, dataset=["one"])[2]["data.info_sha256"]
    result, files, _ = ask(folder, dataset_dir={"one": {"file_name": str(folder / "one.json")}}, dataset=["one"])
    assert files["one"]["files"][0]["sha256"] == sha(b'[{"a": 1}]')


def test_without_arguments_it_is_said():
    unknown = Unknowns()
    assert data_identity(None, unknown)["datasets"] == []
    assert unknown.rows[0]["what"] == "data"


def test_tokenized_rows_may_come_from_other_files(folder):
    assert "tokenized_path" in ask(folder, dataset="one", tokenized_path="x")[2]["data.files_used"]


def test_the_templates_content_is_hashed(monkeypatch):
    @dataclass
    class Template:
        slots: list
        plugin: object = object()

    module = Args(TEMPLATES={"qwen": Template(["<|im_start|>"])})
    monkeypatch.setitem(sys.modules, "llamafactory.data.template", module)
    first = template_sha256("qwen")
    module.TEMPLATES["qwen"].plugin = object()  # another address
    assert template_sha256("qwen") == first
    module.TEMPLATES["qwen"].slots.append("x")
    assert template_sha256("qwen") != first and template_sha256("other") is None


def test_the_streamed_hash_is_that_of_the_content(tmp_path, monkeypatch):
    monkeypatch.setattr("llamafactory_obs.identity.files.BLOCK", 7)
    for size in (0, 6, 7, 8, 1000):
        (tmp_path / "x").write_bytes(bytes(range(250)) * 4)
        with open(tmp_path / "x", "r+b") as file:
            file.truncate(size)
        assert sha256_file(tmp_path / "x") == sha((tmp_path / "x").read_bytes())


def test_the_hash_of_files_sees_names(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"1")
    assert hash_files(tmp_path, ["a"])["sha256"] != hash_files(tmp_path, ["b"])["sha256"]
    assert hash_files(tmp_path, ["b", "a"]) == hash_files(tmp_path, ["a", "b"])


def test_only_a_link_into_a_hub_cache_is_taken_by_its_name(tmp_path):
    name = "a" * 64
    for place, want in (("models--o--n/blobs", name), ("other/blobs", None), ("models--o--n/elsewhere", None)):
        blob = tmp_path / place / name
        blob.parent.mkdir(parents=True)
        blob.write_bytes(b"x")
        link = tmp_path / place / "link"
        link.symlink_to(blob)
        assert hub_blob_sha256(link) == want and hub_blob_sha256(blob) is None
