"""Looks at one checkpoint: its parts, its weights, whether it loads. It only reads."""

import os
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..errors import ConfigError
from ..identity.files import hash_files
from ..probe.complete import Proof, prove
from ..texts import text
from .base_model import Base
from .context import Context, base_folder
from .files import CONFIG, STATE, Incomplete, file_named, read_json
from .loading import Loaded, Loader
from .part import BROKEN, DOUBTFUL, GOOD, MISSING, Expected, Part
from .resume_state import resume_parts
from .run_of import THIS, UNKNOWN, Witness
from .tokenizer import check_generation, check_tokenizer
from .trainer_state import read_state
from .verdict import DAMAGED, Verdict, judge
from .weights import Weights, check_weights, read_instead


@dataclass
class Examined:
    """One checkpoint.

    Attributes:
        path: its folder. name: of that. step: its number; None for the final model.
        verdict: what it is good for.
        parts: what a resume or a server reads, each with its state.
        kind: adapter | full | fsdp | deepspeed | none. what: the same in a few words.
        bytes: of all its files. saved_at: when its state was written, Unix seconds; 0 where unknown.
        epoch: of the Trainer's state.
        run: this | older | unknown. run_why: told by what.
        loaded: what came of loading it; None where that was not tried, and `not_loaded` says why.
        moving: why it may be being written just now; "" where it is at rest.
        files: `{"sha256", "files"}` with `--hash`.
        final: the model in the output folder itself.
    """

    path: Path
    step: int | None
    verdict: Verdict
    parts: list[Part] = field(default_factory=list)
    kind: str = "none"
    what: str = ""
    bytes: int = 0
    saved_at: float = 0.0
    epoch: float | None = None
    run: str = UNKNOWN
    run_why: str = ""
    loaded: Loaded | None = None
    not_loaded: str = ""
    moving: str = ""
    files: dict | None = None
    final: bool = False

    @property
    def name(self) -> str:
        return "final" if self.final else self.path.name

    @property
    def good(self) -> bool:
        """Resumes without a loss that changes the course of training, and nothing in it is damaged."""
        return self.verdict.resumes and not self.verdict.grave and self.verdict.verdict != DAMAGED and not self.moving

    def as_dict(self) -> dict:
        """For `--json`."""
        loaded = asdict(self.loaded) if self.loaded is not None else {"loaded": None, "why": self.not_loaded}
        verdict = asdict(self.verdict)
        return {
            "path": str(self.path),
            "name": self.name,
            "step": self.step,
            **verdict,
            "kind": self.kind,
            "what": self.what,
            "bytes": self.bytes,
            "saved_at": self.saved_at or None,
            "epoch": self.epoch,
            "parts": [asdict(part) for part in self.parts],
            "loaded": loaded,
            "run": self.run,
            "run_why": self.run_why,
            "moving": self.moving,
            **({"files": self.files} if self.files is not None else {}),
        }


@dataclass(frozen=True)
class Depth:
    """How far to look.

    Attributes:
        values: read all tensors; else headers and sizes only (`--quick`).
        hashed: hash all files.
    """

    values: bool = True
    hashed: bool = False


def examine(
    one: Witness, folder: Path, context: Context, run: tuple[str, str], depth: Depth, loader: Loader | None
) -> Examined:
    """Examine a `checkpoint-N`; nothing is raised for what lies in it.

    Args:
        one: its witness, see `run_of`. run: which run it is of, and told by what.
        loader: loads it; None where that is not wanted.

    Raises:
        ConfigError: the loader's device is none that torch has.
    """
    try:
        return _examine(one, folder, context, run, depth, loader)
    except ConfigError:
        raise
    except OSError as error:
        why = text("checkpoint.examine.unreadable", name=folder.name, error=error.strerror or error)
    except Exception as error:  # whatever lies in it, the others are to be judged
        why = text(
            "checkpoint.examine.foreign",
            name=folder.name,
            kind=type(error).__name__,
            said=" ".join(str(error).split())[:120],
        )
    return Examined(folder, one.step, Verdict(DAMAGED, False, False, reasons=[why]), run=run[0], run_why=run[1])


def _examine(one, folder, context, run, depth, loader) -> Examined:
    if not folder.is_dir():
        what = text("checkpoint.examine.dead_link") if folder.is_symlink() else text("checkpoint.examine.file")
        return Examined(
            folder,
            one.step,
            Verdict(DAMAGED, False, False, reasons=[text("checkpoint.examine.is", name=folder.name, what=what)]),
        )
    this_run = run[0] == THIS
    base = context.base(folder, this_run)
    expected = context.expected(folder, one.step, one.arguments, this_run)
    weights = check_weights(folder, context, base, expected, quick=not depth.values)
    least, most = weights.bounds
    expected = Expected(**{**asdict(expected), "least": least, "most": most})
    tokenizer = check_tokenizer(folder, weights.rows, quick=not depth.values)
    others = resume_parts(folder, expected, quick=not depth.values)
    data, epoch = _data(folder, one)
    parts = [weights.part, *read_instead(folder, weights.kind), tokenizer, *check_generation(folder), *others, *data]
    now = prove(folder, one.step)
    at_rest = now if now.complete else prove(folder, one.step, at_rest=True)
    parts += _left_over(at_rest, parts)
    loaded, why = _load(folder, weights, base, loader)
    found = Examined(folder, one.step, judge(weights, parts, loaded), parts, weights.kind, weights.what)
    _fill(found, one, weights, depth, loaded, why)
    found.epoch, (found.run, found.run_why) = epoch, run
    if at_rest.complete and not now.complete and not context.ended:
        found.moving = now.why
    return found


def examine_final(one: Witness, folder: Path, context: Context, depth: Depth, loader: Loader | None) -> Examined | None:
    """Examine the final model in an output folder; None where there is none."""
    base = context.base(folder, this_run=True)
    weights = check_weights(folder, context, base, Expected(0), quick=not depth.values)
    if weights.kind not in ("adapter", "full"):
        return None
    tokenizer = check_tokenizer(folder, weights.rows, quick=not depth.values)
    loaded, why = _load(folder, weights, base, loader)
    parts = [weights.part, tokenizer, *check_generation(folder)]
    found = Examined(folder, None, judge(weights, parts, loaded, final=True), parts, weights.kind, weights.what)
    found.final, found.run, found.run_why = True, THIS, text("checkpoint.examine.final")
    _fill(found, one, weights, depth, loaded, why)
    return found


def _fill(found: Examined, one: Witness, weights: Weights, depth: Depth, loaded: Loaded | None, why: str) -> None:
    found.loaded, found.not_loaded, found.saved_at = loaded, why, one.saved_at
    names = weights.proof.files if found.final else _regular_files(found.path)
    found.bytes = sum((found.path / name).stat().st_size for name in names)
    if depth.hashed:
        found.files = hash_files(found.path, names)


def _load(folder: Path, weights: Weights, base: Base | None, loader: Loader | None) -> tuple[Loaded | None, str]:
    """What came of loading, or why it was not tried."""
    if loader is None:
        return None, text("checkpoint.not_asked")
    if weights.kind not in ("adapter", "full"):
        return None, text("checkpoint.examine.nothing")
    if weights.part.state != GOOD:
        return None, text("checkpoint.weights_broken")
    if weights.kind == "adapter":
        place = base_folder(base)
        if place is None:
            name = text("checkpoint.examine.base", name=base.name) if base else text("checkpoint.examine.its_base")
            return None, text("checkpoint.examine.not_here", name=name)
        base = Base(str(place), adapters=base.adapters, quantization=base.quantization)
        if any(base_folder(Base(one)) is None for one in base.adapters):
            return None, text("checkpoint.examine.merged")
    own_code = _own_code(place if weights.kind == "adapter" else folder)
    if own_code:
        return None, text("checkpoint.examine.own_code", own_code=own_code)
    loaded = loader.load(folder, weights.kind, base or Base(str(folder)))
    return loaded, ("" if loaded.loaded or loaded.stage not in ("base", "process") else loaded.why)


def _own_code(folder: Path) -> str:
    try:
        mapping = read_json(folder / CONFIG).get("auto_map")
        return str(next(iter(mapping.values()))) if mapping else ""
    except (Incomplete, AttributeError):
        return ""


def _data(folder: Path, one: Witness) -> tuple[list[Part], float | None]:
    """Where in the data a resume goes on: the Trainer skips `global_step` steps of the same order."""
    try:
        state = read_state(folder)
        epoch, last = state.get("epoch"), state.get("max_steps")
    except Incomplete:
        return [], None  # the trainer state's own part says so
    if one.arguments.get("ignore_data_skip") is True:
        why = text("checkpoint.examine.data_skip")
        return [Part("data", MISSING, "training_args.bin", why)], None
    if epoch is None or epoch <= 0:
        return [
            Part("data", DOUBTFUL, STATE, text("checkpoint.examine.epoch", file=STATE, epoch=epoch), needed=False)
        ], None
    if last is not None and 0 < last <= (one.step or 0) and state.get("global_step") == one.step:
        why = text("checkpoint.examine.nothing_left", step=one.step, last=last)
        return [Part("data", DOUBTFUL, STATE, why, needed=False)], epoch
    return [Part("data", GOOD, STATE, needed=False)], epoch


def _left_over(proof: Proof, parts: list[Part]) -> list[Part]:
    """What the completeness proof of the probe finds beyond the parts: a temporary file of a save that was cut off."""
    if any(part.state in (BROKEN, MISSING) and part.name in ("weights", "trainer_state") for part in parts):
        return []
    if proof.complete or proof.kind == "unsupported":
        return []
    return [Part("save", BROKEN, file_named(proof.why), proof.why)]


def _regular_files(folder: Path) -> list[str]:
    """Names of all files in it, shards' folders too; links to files count, links to folders are not entered."""
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place) / name
            try:
                if stat.S_ISREG(path.stat().st_mode):
                    found.append(str(path.relative_to(folder)))
            except OSError:
                continue
    return sorted(found)
