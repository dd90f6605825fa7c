"""What is known of a run beside its rows."""

from dataclasses import dataclass, field
from typing import Any

from ..detect import Facts


@dataclass(frozen=True)
class RunFacts:
    """What is known of a run beside its rows.

    Attributes:
        kind: `sft`, `preference` or `rl`, as in `Curves`.
        logging_steps: optimizer steps per row.
        max_steps: what the run was going to do; None where unknown.
        settings: its training arguments as far as they are known.
        clock_s: resolution of the log's clock in seconds (1 for LlamaFactory's `elapsed_time`), 0 for a fine one.
        limit_gib: memory that the run may use; None where unknown.
        idle: what is known of the machine, for the advice on a GPU that waits.
        leave_out: parts that somebody else judges already: "grad_norm", "vram", "gpu_use".
    """

    kind: str = "sft"
    logging_steps: int = 1
    max_steps: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    clock_s: float = 0.0
    limit_gib: float | None = None
    idle: Facts | None = None
    leave_out: frozenset[str] = frozenset()
