"""What the run's record says about the model and its template, so that nobody has to type it again."""

from dataclasses import dataclass, field
from pathlib import Path

from ..record.reader import decode_run
from ..record.schema import FOLDER, RUN

#: LlamaFactory's data arguments that change how a prompt is rendered
RENDERING = ("template", "tool_format", "default_system", "enable_thinking", "preserve_thinking")


@dataclass(frozen=True)
class RunFacts:
    """The part of `run.json` that the probe needs; all of it may be missing.

    Attributes:
        model: the base model, a path or a hub name.
        rendering: LlamaFactory's data arguments of `RENDERING` that the run was started with.
        writes_by_rename: safetensors is known to write to a temporary name and rename (0.8.0 and later), so that a
            hard link to a weight file never changes its content.
        quantized: the base was loaded in 4 or 8 bits.
    """

    model: str | None = None
    rendering: dict = field(default_factory=dict)
    writes_by_rename: bool = False
    quantized: bool = False

    @property
    def template(self) -> str | None:
        """The name of LlamaFactory's template."""
        return self.rendering.get("template")


def read_facts(output_dir: Path) -> RunFacts:
    """Read `<output_dir>/obs/run.json`; empty facts where there is none (yet)."""
    run = decode_run(output_dir / FOLDER / RUN)
    resolved = (run.get("config") or {}).get("resolved") or {}
    data = resolved.get("data_args") or {}
    packages = dict(line.split("==", 1) for line in (run.get("packages") or {}).get("list") or [] if "==" in line)
    return RunFacts(
        model=(run.get("model") or {}).get("name_or_path"),
        rendering={name: data[name] for name in RENDERING if data.get(name) is not None},
        writes_by_rename=_at_least(packages.get("safetensors"), (0, 8)),
        quantized=bool((run.get("model") or {}).get("quantization")),
    )


def _at_least(version: str | None, wanted: tuple[int, int]) -> bool:
    try:
        major, minor = (int(part) for part in str(version).split(".")[:2])
    except ValueError:
        return False
    return (major, minor) >= wanted
