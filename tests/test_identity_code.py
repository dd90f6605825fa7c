"""The state of real git repositories, and every way in which there is none."""

import os
import shutil
import subprocess

import pytest

from llamafactory_obs.identity.code import code_identity
from llamafactory_obs.identity.unknown import Unknowns

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder, *arguments):
    names = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init")
    (folder / "train.py").write_text("a = 1\n")
    (folder / "? old name.py").write_text("long enough to be seen as a rename\n" * 5)
    git(folder, "add", ".")
    git(folder, "commit", "-m", "first")
    return folder


def ask(folder, **options):
    unknown = Unknowns()
    return code_identity(folder, unknown, **options), {row["what"]: row["why"] for row in unknown.rows}


def test_a_clean_tree(repository):
    (repository / "sub").mkdir()
    state, unknown = ask(repository / "sub")
    sha = git(repository, "rev-parse", "HEAD").strip()
    assert state == {
        "sha": sha,
        "branch": "main",
        "dirty": False,
        "modified": 0,
        "untracked": 0,
        "diff_sha256": None,
    }
    assert unknown == {}


def test_an_untracked_file_makes_it_dirty(repository):
    (repository / "new.py").write_text("b = 2\n")
    state, unknown = ask(repository)
    assert state["dirty"] is True and (state["modified"], state["untracked"]) == (0, 1)
    assert "code.untracked" in unknown


def test_two_changes_of_one_commit_are_told_apart(repository):
    hashes = set()
    for text in ("a = 2\n", "a = 3\n", "a = 2\n"):
        (repository / "train.py").write_text(text)
        state, _ = ask(repository)
        assert state["dirty"] is True and state["modified"] == 1
        hashes.add(state["diff_sha256"])
    assert len(hashes) == 2 and None not in hashes


def test_a_staged_rename_counts_once(repository):
    git(repository, "mv", "? old name.py", "新 name.py")
    state, _ = ask(repository)
    assert (state["modified"], state["untracked"]) == (1, 0)


def test_a_detached_head_has_no_branch(repository):
    git(repository, "checkout", "--detach")
    state, unknown = ask(repository)
    assert len(state["sha"]) == 40 and state["branch"] is None and "detached" in unknown["code.branch"]


def test_asking_takes_no_lock_and_writes_nothing(repository):
    os.utime(repository / "train.py", (1, 1))  # a stale index entry: plain `git status` would refresh the index
    before = (repository / ".git" / "index").read_bytes()
    ask(repository)
    assert (repository / ".git" / "index").read_bytes() == before


def test_no_commit_yet(tmp_path):
    git(tmp_path, "init")
    state, unknown = ask(tmp_path)
    assert state["sha"] is None and state["branch"] == "main" and "no commit" in unknown["code.sha"]


def nothing(state):
    return all(value is None for value in state.values())


def test_not_a_repository(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    state, unknown = ask(tmp_path)
    assert nothing(state) and "not in a git repository" in unknown["code"]
    assert str(tmp_path) not in unknown["code"]


def test_a_folder_that_is_gone(tmp_path):
    state, unknown = ask(tmp_path / "gone")
    assert nothing(state) and "does not exist" in unknown["code"]


def test_no_git(repository, monkeypatch):
    monkeypatch.setenv("PATH", "")
    state, unknown = ask(repository)
    assert nothing(state) and "not installed" in unknown["code"]


def test_git_that_hangs_is_given_up(repository, tmp_path, monkeypatch):
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 30\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    state, unknown = ask(repository, timeout_s=0.2)
    assert nothing(state) and "within 0.2 s" in unknown["code"]


def test_a_broken_repository(repository):
    (repository / ".git" / "HEAD").write_text("garbage")
    state, unknown = ask(repository)
    assert nothing(state) and unknown["code"]
