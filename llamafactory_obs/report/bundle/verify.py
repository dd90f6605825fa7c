"""`report --verify`: is a bundle whole, and are its weights those of a run?"""

import hashlib
import json
import tarfile
import zipfile
import zlib
from pathlib import Path

from ...errors import ConfigError
from ...identity.files import BLOCK, hash_files
from . import archive

KIND, MANIFEST = "llamafactory-obs bundle", "manifest.json"
_DAMAGED = (OSError, ValueError, tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError)


def verify(path: Path, run: Path | None = None) -> dict:
    """Read the whole archive and compare every file with the manifest.

    Args:
        run: a run's folder whose weights are compared with those that the manifest names.

    Returns:
        `{"path", "whole", "why", "files", "bytes", "manifest_sha256", "weights", "compared_with", "weights_why"}`;
        `why` is "" for a whole one. `whole` is False also where the weights are others.

    Raises:
        ConfigError: there is no such file, or no such folder.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; name a bundle that `report --bundle` wrote")
    if run is not None and not run.is_dir():
        raise ConfigError(f"{run}: no such folder; name the run's output_dir, whose weights are to be compared")
    found: dict = {"path": str(path), "whole": False, "why": "", "files": 0, "bytes": path.stat().st_size}
    try:
        manifest, digest = _compare(path, found)
    except _DAMAGED as error:
        found["why"] = found["why"] or f"it cannot be read ({type(error).__name__}: {error})"
        return found
    weights = manifest.get("weights")
    found |= {"manifest_sha256": digest, "weights": weights if isinstance(weights, dict) else {}}
    if run is not None:
        found |= {"compared_with": str(run), "weights_why": _weights_differ(found["weights"], run)}
    found["whole"] = not found["why"] and not found.get("weights_why")
    return found


def read_manifest(path: Path) -> dict:
    """The manifest of a bundle.

    Raises:
        ValueError, OSError, tarfile.TarError, zipfile.BadZipFile: it has none, or is no archive.
    """
    for name, file in archive.members(path):
        if name == MANIFEST:
            manifest = json.loads(file.read())
            if isinstance(manifest, dict):
                return manifest
            break
    raise ValueError(f"no {MANIFEST}")


def _compare(path: Path, found: dict) -> tuple[dict, str]:
    """Fill `files` and `why`; returns the manifest and its own hash."""
    content, hashes = None, {}
    for name, file in archive.members(path):
        if name == MANIFEST and content is None:
            content = file.read()
            continue
        if name in hashes or name == MANIFEST:
            raise ValueError(f"{name} is in it twice")
        digest = hashlib.sha256()
        while block := file.read(BLOCK):
            digest.update(block)
        hashes[name] = digest.hexdigest()
    if content is None:
        raise ValueError(f"it has no {MANIFEST}: no bundle of ours")
    manifest = json.loads(content)
    listed = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(listed, dict) or manifest.get("kind") != KIND:
        raise ValueError(f"its {MANIFEST} is none of ours")
    found["files"] = len(listed)
    wanted = {name: one.get("sha256") if isinstance(one, dict) else None for name, one in listed.items()}
    wrong = [f"{name} is missing" for name in wanted if name not in hashes]
    wrong += [f"{name} is not in the manifest" for name in hashes if name not in wanted]
    wrong += [f"{name} was changed" for name in wanted if name in hashes and hashes[name] != wanted[name]]
    found["why"] = "; ".join(wrong[:5]) + (f" and {len(wrong) - 5} more" if len(wrong) > 5 else "")
    return manifest, hashlib.sha256(content).hexdigest()


def _weights_differ(weights: dict, run: Path) -> str:
    """Why the weights in a run's folder are not those of the bundle; "" where they are."""
    rows = weights.get("files")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return f"the bundle names none ({weights.get('why', '')})"
    folder = run / str(weights.get("folder", "."))
    try:
        there = hash_files(folder, [str(row.get("file")) for row in rows])
    except OSError as error:
        return f"{error.filename or folder}: {error.strerror}"
    changed = [a["file"] for a, b in zip(there["files"], rows, strict=True) if a["sha256"] != b.get("sha256")]
    return f"{', '.join(changed[:3])} has another SHA-256" if changed else ""
