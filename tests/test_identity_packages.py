"""Installed distributions, found in real `.dist-info` folders."""

import hashlib
import importlib.metadata
import json
import sys

import pytest

from llamafactory_obs.identity import packages
from llamafactory_obs.identity.packages import package_identity
from llamafactory_obs.identity.unknown import Unknowns


@pytest.fixture
def site(tmp_path, monkeypatch):
    """An environment of our own: `add(name, version, ...)` installs, the first folder on the path wins."""
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder) for folder in folders])

    def add(name, version, folder=0, direct=None, suffix="dist-info"):
        place = folders[folder] / f"{name}-{version}.{suffix}"
        place.mkdir()
        file = "METADATA" if suffix == "dist-info" else "PKG-INFO"
        (place / file).write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        if direct is not None:
            (place / "direct_url.json").write_text(direct if isinstance(direct, str) else json.dumps(direct))
        importlib.invalidate_caches()

    return add


def ask():
    unknown = Unknowns()
    return package_identity(unknown), {row["what"]: row["why"] for row in unknown.rows}


def test_sorted_normalised_and_without_shadowed_copies(site):
    site("torch", "2.14.1")
    site("Flash_Attn", "2.8.0")
    site("torch", "2.0.0", folder=1)
    site("old.egg", "1.0", folder=1, suffix="egg-info")
    got, unknown = ask()
    assert got["list"] == ["flash-attn==2.8.0", "old-egg==1.0", "torch==2.14.1"]
    assert got["sha256"] == hashlib.sha256(b"flash-attn==2.8.0\nold-egg==1.0\ntorch==2.14.1").hexdigest()
    assert got["main"]["torch"] == "2.14.1" and got["main"]["flash-attn"] == "2.8.0" and got["main"]["vllm"] is None
    assert got["sources"] == {} and unknown == {}


def test_a_version_changes_the_hash(site):
    site("peft", "0.18.1")
    before = ask()[0]["sha256"]
    site("trl", "0.24.0", folder=1)
    assert ask()[0]["sha256"] != before


def test_where_an_install_came_from(site, tmp_path):
    commit = "a" * 40
    site("llamafactory", "0.9.5", direct={"url": f"file://{tmp_path}/My%20Code", "dir_info": {"editable": True}})
    url = "https://bob:pw@host.io/x.git"
    site("peft", "1.0", direct={"url": url, "vcs_info": {"vcs": "git", "commit_id": commit}})
    site("wheel_one", "1.0", direct={"url": "https://h/w.whl", "archive_info": {"hashes": {"sha256": "ab"}}})
    site("broken", "1.0", direct="{no json")
    got, unknown = ask()
    assert got["sources"] == {
        "llamafactory": {"kind": "editable", "url": "My Code"},
        "peft": {"kind": "vcs", "url": "https://***@host.io/x.git", "commit": commit},
        "wheel-one": {"kind": "archive", "url": "https://h/w.whl", "sha256": "ab"},
    }
    assert "packages.sources.broken" in unknown
    assert "packages.sources.llamafactory.sha" in unknown  # the folder does not exist


def test_an_editable_checkout_has_its_commit(site, tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "git_state", lambda folder: {"sha": "b" * 40, "dirty": True, "branch": "x"})
    site("llamafactory", "0.9.5", direct={"url": f"file://{tmp_path}", "dir_info": {"editable": True}})
    assert ask()[0]["sources"]["llamafactory"]["sha"] == "b" * 40


def test_a_broken_distribution_is_named(site, tmp_path):
    (tmp_path / "first" / "nothing.dist-info").mkdir()
    site("peft", "1.0")
    got, unknown = ask()
    assert got["list"] == ["peft==1.0"] and "packages.list" in unknown


def test_the_real_environment_agrees_with_its_metadata():
    got, _ = ask()
    assert len(got["list"]) == len(set(got["list"])) and got["list"] == sorted(got["list"])
    assert f"pytest=={importlib.metadata.version('pytest')}" in got["list"]
    assert f"pyyaml=={importlib.metadata.version('pyyaml')}" in got["list"]
