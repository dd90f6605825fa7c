"""`doctor`: says truly whether the plug is live, and why not."""

import json

import pytest

from llamafactory_obs import cli, doctor


@pytest.fixture
def plain(monkeypatch):
    """No switch set, whatever the tests run under."""
    for name in ("LLAMAFACTORY_OBS_AUTOLOAD", "TORCH_DEVICE_BACKEND_AUTOLOAD", "USE_V1", "ALLOW_EXTRA_ARGS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def fresh(monkeypatch, plain):
    """`fresh(**changes)`: what the new process found, without starting one."""

    def find(**changes):
        found = {"torch": "2.9.0+cu128", "error": None, "cuda": [], "live": True, "entry_point": True, **changes}
        monkeypatch.setattr(doctor, "_fresh_import", lambda: found)

    versions = {"torch": "2.9.0", "transformers": "5.6.0", "llamafactory": "0.9.5"}
    monkeypatch.setattr(doctor, "_version", versions.get)
    find()
    find.versions = versions
    return find


def test_the_plug_of_this_environment(llamafactory, plain, capsys):
    assert cli.main(["doctor", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["live"] is True and result["reasons"] == []
    versions = {row["name"]: row["version"] for row in result["packages"]}
    assert versions["torch"] and versions["llamafactory"]


def test_switched_off_is_proven_and_explained(llamafactory, plain, monkeypatch, capsys):
    monkeypatch.setenv("LLAMAFACTORY_OBS_AUTOLOAD", "0")
    found, look = [], doctor._fresh_import
    monkeypatch.setattr(doctor, "_fresh_import", lambda: found.append(look()) or found[0])
    assert cli.main(["doctor"]) == 1
    assert found[0]["live"] is False and found[0]["entry_point"] is True
    out = capsys.readouterr().out
    assert "NOT live" in out.splitlines()[0] and "LLAMAFACTORY_OBS_AUTOLOAD=0" in out and "train" in out


@pytest.mark.parametrize(
    ("changes", "environment", "part"),
    [
        ({"live": False}, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, "switches PyTorch's start-up mechanism off"),
        ({"live": False, "entry_point": False}, {}, "no entry point"),
        ({"live": False, "torch": None}, {}, "torch is not installed"),
        ({"live": False, "torch": None, "error": "OSError: libcudart"}, {}, "OSError: libcudart"),
        ({"live": False, "torch": "2.4.1"}, {}, "2.5 and later"),
        ({"live": False}, {}, "no reason known"),
        ({}, {"USE_V1": "1"}, "USE_V1=1"),
    ],
)
def test_reasons(fresh, monkeypatch, changes, environment, part):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    fresh(**changes)
    result = doctor.examine()
    assert result["live"] is False
    assert len(result["reasons"]) == 1 and part in result["reasons"][0]["what"] and result["reasons"][0]["fix"]


def test_nothing_to_plug_into(fresh):
    fresh.versions.pop("llamafactory")
    assert "LlamaFactory is not installed" in doctor.examine()["reasons"][0]["what"]


def test_versions_that_were_not_tested_and_notes(fresh, monkeypatch):
    fresh.versions["transformers"] = "5.7.0"
    monkeypatch.setenv("ALLOW_EXTRA_ARGS", "1")
    result = doctor.examine()
    assert result["live"] is True
    assert {row["name"]: row["note"] for row in result["packages"]}["transformers"] == "tested with 5.6.0"
    assert any("5.7.0" in note for note in result["notes"])
    assert any("ALLOW_EXTRA_ARGS=1" in note for note in result["notes"])


def test_a_screen_of_80_columns_that_says_what_is_missing(fresh):
    result = doctor.examine()
    lines = doctor.render(result).splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) <= 45
    assert "is live" in lines[0]
    assert any(line.startswith("peft ") and "no LoRA" in line for line in lines)
    if not result["machine"]["gpus"]:
        assert any(line.startswith("gpu ") and "RSS instead of VRAM" in line for line in lines)


def test_a_card(fresh, monkeypatch):
    gpu = {"name": "NVIDIA RTX 4090", "total_gib": 24.0, "used_gib": 13.2, "note": None}
    result = doctor.examine()
    result["machine"] |= {"gpus": [gpu], "gpu_note": None, "driver": "570.86.15"}
    text = doctor.render(result)
    assert "NVIDIA RTX 4090, 13.2 of 24.0 GiB in use" in text and "570.86.15" in text and "RSS" not in text
