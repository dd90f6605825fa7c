"""The base model that a baseline is of: its name, its revision, and what its files hold."""

from dataclasses import dataclass
from pathlib import Path

from ...errors import ConfigError
from ...identity.files import hub_blob_sha256, sha256_file, sha256_text
from ...identity.model import COMMIT, WEIGHTS, find_folder
from ...identity.redact import redact
from ..run_config import Arguments

#: what `fingerprint` looks at, for the record
COVERS = "config.json and the content of every weight file"


@dataclass(frozen=True)
class BaseModel:
    """The model of a run config, without its adapters.

    Attributes:
        name: `model_name_or_path`, a path or a hub name.
        revision: the commit, or the branch or tag that was asked for; None for a folder.
        folder: its files on this machine; None where they are not here.
        cache: LlamaFactory's `cache_dir`.
    """

    name: str
    revision: str | None
    folder: Path | None
    cache: str | None = None

    @property
    def source(self) -> str:
        """What transformers is told to load: the folder, so that the revision holds too."""
        return str(self.folder) if self.folder is not None else self.name


def find_base_model(arguments: Arguments) -> BaseModel:
    """The base model that LlamaFactory would load.

    Raises:
        ConfigError: a path that is not there, or a hub revision that is not on this machine.
    """
    model = arguments.model
    name, wanted = model.model_name_or_path, model.model_revision
    folder = _find(name, wanted, model.cache_dir)
    if folder is None and (name.startswith(("/", ".", "~")) or name.count("/") > 1):
        raise ConfigError(f"there is no model at {name} (from this folder); correct model_name_or_path")
    if folder is None and wanted not in (None, "main"):
        get = f"hf download {name} --revision {wanted}"
        raise ConfigError(f"revision {wanted} of {name} is not on this machine; fetch it first: {get}")
    if folder is not None and COMMIT.fullmatch(folder.name):
        wanted = folder.name
    return BaseModel(name, None if Path(name).is_dir() else wanted, folder, model.cache_dir)


def _find(name: str, revision: str | None, cache: str | None) -> Path | None:
    """In LlamaFactory's `cache_dir`, else in the hub's own cache."""
    return find_folder(name, revision, None, cache) or find_folder(name, revision, None)


def fingerprint(base: BaseModel, known: list | None = None) -> dict:
    """What a model is, cheap enough for every preflight.

    A file is read only where its size, its time of change or its inode's time of change is not the recorded one; a file
    of the hub cache has its hash for its name. The first time costs one reading of the weights.

    Args:
        known: `files` of an earlier fingerprint.

    Returns:
        `{"name", "revision", "covers", "config_sha256", "weights_sha256", "files": [{"file", "bytes", "mtime_ns",
        "ctime_ns", "sha256"}]}`; the two hashes are None where the files are not on this machine.

    Raises:
        OSError: a file cannot be read.
    """
    found = {"name": redact(base.name), "revision": base.revision, "covers": COVERS}
    found |= {"config_sha256": None, "weights_sha256": None, "files": []}
    folder = base.folder or _find(base.name, base.revision, base.cache)  # it may have been fetched since
    if folder is None:
        return found
    if base.revision is not None and COMMIT.fullmatch(folder.name):
        found["revision"] = folder.name
    before = {one["file"]: one for one in known or [] if isinstance(one, dict) and isinstance(one.get("file"), str)}
    for path in sorted(one for one in folder.iterdir() if WEIGHTS.fullmatch(one.name)):
        stat = path.stat()
        row = {"file": path.name, "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns, "ctime_ns": stat.st_ctime_ns}
        old = before.get(path.name, {})
        untouched = all(old.get(key) == value for key, value in row.items()) and isinstance(old.get("sha256"), str)
        row["sha256"] = hub_blob_sha256(path) or (old["sha256"] if untouched else sha256_file(path))
        found["files"].append(row)
    config = folder / "config.json"
    if config.is_file():
        found["config_sha256"] = sha256_file(config)
    if found["files"]:
        found["weights_sha256"] = sha256_text("".join(f"{row['file']}\0{row['sha256']}\n" for row in found["files"]))
    return found
