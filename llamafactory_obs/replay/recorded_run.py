"""The run as its record tells it: the config that it was started with, and what changed around it since."""

import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..identity.data import data_identity, file_job
from ..identity.redact import HIDDEN
from ..identity.unknown import Unknowns
from ..plugin import config as plug
from ..preflight.run_config import RunConfig
from ..record.reader import RunRecord, load_record
from ..record.schema import RUN
from ..settings import Settings

#: packages that decide which token ids a text becomes
_TOKENIZING = ("llamafactory", "transformers", "tokenizers", "datasets")


@dataclass(frozen=True)
class RecordedRun:
    """One run.

    Attributes:
        output_dir: of the run.
        record: the run record.
        config: as given, the overrides of this call applied.
    """

    output_dir: Path
    record: RunRecord
    config: RunConfig

    @property
    def stage(self) -> str:
        """LlamaFactory's stage; its default is sft."""
        return str(self.config.given.get("stage") or "sft")

    @property
    def world_size(self) -> int:
        """Processes that trained together; 1 where it is not known."""
        return (self.record.run.get("world") or {}).get("world_size") or 1

    def number(self, name: str, step: int) -> float | None:
        """A column of `steps.jsonl` at a step."""
        steps = self.record.steps
        if name not in steps or step not in steps["step"]:
            return None
        return steps[name][steps["step"].index(step)]


def recorded_run(output_dir: Path, overrides: tuple[str, ...]) -> RecordedRun:
    """Read the record.

    Raises:
        ConfigError: there is no such folder or no record, or it does not hold a config of LlamaFactory.
    """
    if not output_dir.is_dir():
        raise ConfigError(f"no such folder: {output_dir}; name the run's output_dir")
    record = load_record(output_dir)
    given = (record.run.get("config") or {}).get("given")
    if not isinstance(given, dict):
        raise ConfigError(f"{record.folder / RUN} holds no config: only runs that LlamaFactory started can be replayed")
    if given.get("stage") == "ppo":
        raise ConfigError("stage ppo: its batches are generated while it trains, no log can rebuild them")
    wrong = [word for word in overrides if "=" not in word or word.startswith("=")]
    if wrong:
        raise ConfigError(f"--override reads key=value, got {wrong[0]!r}")
    from omegaconf import OmegaConf

    given, _ = plug.split(given)
    given = {key: value for key, value in given.items() if value != HIDDEN}
    given |= OmegaConf.to_container(OmegaConf.from_cli(list(overrides)))
    config = RunConfig(record.folder / RUN, given, Settings(), (), tuple(overrides))
    return RecordedRun(output_dir, record, config)


def causes_of_change(run: RecordedRun, data_args: object, template_sha256: str | None) -> list[str]:
    """Why rows may not be those that were trained on, by what the record knows of the data; it may be silent.

    Args:
        data_args: LlamaFactory's, as read now.
        template_sha256: of the template as used now.
    """
    then, causes = run.record.run.get("data") or {}, []
    now = data_identity(data_args, Unknowns())
    files = file_job(data_args, now["datasets"])()
    for name, before in (then.get("files") or {}).items():
        after = files.get(name) or {}
        if before.get("sha256") and after.get("sha256") and before["sha256"] != after["sha256"]:
            names = ", ".join(str(one.get("file")) for one in after.get("files") or []) or name
            causes.append(f"the file of the data set {name} ({names}) is not the one that was trained on")
    if then.get("template_sha256") and template_sha256 and then["template_sha256"] != template_sha256:
        causes.append("the template of this name has other content than in the run")
    settings = then.get("settings") or {}
    for name, value in (now.get("settings") or {}).items():
        if name in settings and settings[name] != value and name != "overwrite_cache":
            causes.append(f"{name} is {value!r}, in the run it was {settings[name]!r}")
    return causes + _packages(run)


def _packages(run: RecordedRun) -> list[str]:
    listed = (run.record.run.get("packages") or {}).get("list") or []
    then, causes = dict(line.split("==", 1) for line in listed if "==" in line), []
    for name in _TOKENIZING:
        try:
            now = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if name in then and then[name] != now:
            causes.append(f"{name} is {now} here, in the run it was {then[name]}")
    return causes
