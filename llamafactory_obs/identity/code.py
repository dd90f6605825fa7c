"""The code's version: commit, branch and whether the working tree differs from it."""

import hashlib
import os
import subprocess

from .unknown import Unknowns

TIMEOUT_S = 2.0


class GitError(Exception):
    """Git gave no answer; the message is the reason, without paths."""


def code_identity(cwd: str | os.PathLike | None, unknown: Unknowns, timeout_s: float = TIMEOUT_S) -> dict:
    """The state of the git repository that holds `cwd` (None: the current directory).

    Returns:
        `{"sha", "branch", "dirty", "modified", "untracked", "diff_sha256"}`; dirty counts untracked files too (a new
        module is part of the code that runs), `modified` and `untracked` count entries, `diff_sha256` tells two dirty
        trees of one commit apart (tracked changes only). What git cannot say is None and named in `unknown`.
    """
    state = {"sha": None, "branch": None, "dirty": None, "modified": None, "untracked": None, "diff_sha256": None}
    try:
        state.update(git_state(cwd, timeout_s))
    except GitError as error:
        unknown.add("code", error)
        return state
    if state["sha"] is None:
        unknown.add("code.sha", "the repository has no commit yet")
    elif state["modified"]:
        try:
            diff = _git(cwd, ["diff", "HEAD", "--no-ext-diff", "--no-textconv", "--binary"], timeout_s)
            state["diff_sha256"] = hashlib.sha256(diff).hexdigest()
        except GitError as error:
            unknown.add("code.diff_sha256", error)
    if state["branch"] is None:
        unknown.add("code.branch", "HEAD is detached: no branch is checked out")
    if state["untracked"]:
        unknown.add("code.untracked", "the content of untracked files is not part of the identity")
    return state


def git_state(cwd: str | os.PathLike | None, timeout_s: float = TIMEOUT_S) -> dict:
    """`{"sha", "branch", "dirty", "modified", "untracked"}` from one `git status`. Raises GitError."""
    raw = _git(cwd, ["status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal"], timeout_s)
    sha = branch = None
    modified = untracked = 0
    entries = iter(raw.decode("utf-8", "replace").split("\0"))
    for entry in entries:
        if entry.startswith("# branch.oid "):
            sha = entry.removeprefix("# branch.oid ")
        elif entry.startswith("# branch.head "):
            branch = entry.removeprefix("# branch.head ")
        elif entry.startswith("? "):
            untracked += 1
        elif entry[:2] in ("1 ", "2 ", "u "):
            modified += 1
            if entry.startswith("2 "):
                next(entries, None)  # a rename is followed by its old path
    return {
        "sha": None if sha == "(initial)" else sha,
        "branch": None if branch == "(detached)" else branch,
        "dirty": bool(modified or untracked),
        "modified": modified,
        "untracked": untracked,
    }


def _git(cwd: str | os.PathLike | None, arguments: list[str], timeout_s: float) -> bytes:
    """Git's output; it takes no lock and runs no hook, pager or prompt. Raises GitError."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false", *arguments]
    try:
        result = subprocess.run(
            command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s
        )
    except FileNotFoundError:
        missing = cwd is not None and not os.path.isdir(cwd)
        raise GitError("the working directory does not exist" if missing else "git is not installed") from None
    except subprocess.TimeoutExpired:
        raise GitError(f"git gave no answer within {timeout_s:g} s") from None
    except OSError as error:
        raise GitError(f"git could not be run: {error.strerror}") from None
    if result.returncode:
        text = result.stderr.decode("utf-8", "replace")
        if "not a git repository" in text:
            raise GitError("the working directory is not in a git repository")
        if "dubious ownership" in text:
            raise GitError("git refuses the repository: it belongs to another user (safe.directory)")
        raise GitError(f"git {arguments[0]} failed with exit code {result.returncode}")
    return result.stdout
