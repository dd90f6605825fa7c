"""What is installed: every distribution with its version, and where an editable or VCS install came from."""

import hashlib
import importlib.metadata
import json
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .code import GitError, git_state
from .redact import redact_text
from .unknown import Unknowns

MAIN = ["torch", "transformers", "peft", "trl", "accelerate", "llamafactory", "datasets", "vllm", "deepspeed"]
MAIN += ["flash-attn", "bitsandbytes", "tokenizers", "liger-kernel", "unsloth", "numpy"]
"""The distributions whose version decides the numbers of a run."""

MAX_CHECKOUTS = 8
"""Editable installs whose git commit is asked for (each costs one git call)."""


def package_identity(unknown: Unknowns) -> dict:
    """The installed distributions.

    Returns:
        `{"main": {name: version|None}, "list": ["name==version", ...] sorted, "sha256" of that list joined
        by newlines, "sources": {name: {"kind": "editable|vcs|archive|directory", "url", "commit", "sha", "dirty"}}}`.
        Names are normalised (PEP 503); of two copies on `sys.path` the one that Python imports counts.
    """
    found: dict[str, tuple[str, importlib.metadata.Distribution]] = {}
    for one in importlib.metadata.distributions():
        pair = _name_and_version(one)
        if pair is None:
            unknown.add("packages.list", "a distribution on sys.path has no readable name or version")
        elif pair[0] not in found:
            found[pair[0]] = (pair[1], one)
    rows = sorted(f"{name}=={version}" for name, (version, _) in found.items())
    return {
        "main": {name: found[name][0] if name in found else None for name in MAIN},
        "list": rows,
        "sha256": hashlib.sha256("\n".join(rows).encode()).hexdigest(),
        "sources": unknown.guard("packages.sources", lambda: _sources(found, unknown), {}),
    }


def normalise(name: str) -> str:
    """PEP 503: `Flash_Attn` -> `flash-attn`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _name_and_version(one: importlib.metadata.Distribution) -> tuple[str, str] | None:
    """From the folder's name where it is a `.dist-info` (fast), else from the metadata."""
    folder = getattr(getattr(one, "_path", None), "name", "")
    match = re.fullmatch(r"([^-]+)-([^-]+)\.dist-info", folder)
    if match:
        return normalise(match[1]), match[2]
    try:
        return (normalise(one.name), str(one.version)) if one.name and one.version else None
    except Exception:
        return None


def _sources(found: dict, unknown: Unknowns) -> dict[str, dict]:
    """What `direct_url.json` (PEP 610) says of installs that came from no index."""
    sources: dict[str, dict] = {}
    asked = 0
    for name, (_, one) in sorted(found.items()):
        text = one.read_text("direct_url.json")
        if not text:
            continue
        try:
            row, folder = _source(json.loads(text))
        except Exception as error:
            unknown.add(f"packages.sources.{name}", error)
            continue
        if folder is not None and row["kind"] == "editable":
            asked += 1
            try:
                if asked > MAX_CHECKOUTS:
                    raise GitError(f"only the first {MAX_CHECKOUTS} editable installs are asked for their commit")
                state = git_state(folder)
                row.update(sha=state["sha"], dirty=state["dirty"])
            except GitError as error:
                unknown.add(f"packages.sources.{name}.sha", error)
        sources[name] = row
    return sources


def _source(direct: dict) -> tuple[dict, Path | None]:
    """One entry and, for a local folder, where it is. A local path is reduced to its last part: no user names."""
    url = str(direct.get("url", ""))
    folder = Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None
    row = {"url": redact_text(url) if folder is None else folder.name}
    if "vcs_info" in direct:
        return {"kind": "vcs", **row, "commit": direct["vcs_info"].get("commit_id")}, None
    if "archive_info" in direct:
        return {"kind": "archive", **row, "sha256": (direct["archive_info"].get("hashes") or {}).get("sha256")}, None
    editable = bool((direct.get("dir_info") or {}).get("editable"))
    return {"kind": "editable" if editable else "directory", **row}, folder
