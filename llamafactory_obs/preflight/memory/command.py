"""`llamafactory-obs memory RUN.yaml`: what the verb does with its words."""

from dataclasses import dataclass
from pathlib import Path

from ...errors import ConfigError
from ...output import own_stdout, print_json
from ...texts import text


@dataclass(frozen=True)
class Request:
    """The words of one call.

    Attributes:
        config: the run config, YAML or JSON.
        overrides: `key=value`, as for `train`.
        longest: tokens of the longest row.
        beside: GiB that other processes hold.
        vllm_share: vLLM's `--gpu-memory-utilization`.
        against: the output folder of a run to compare with.
        as_json: one object on stdout.
    """

    config: Path
    overrides: tuple[str, ...] = ()
    longest: int | None = None
    beside: float | None = None
    vllm_share: float | None = None
    against: Path | None = None
    as_json: bool = False


def add_options(parser) -> None:
    """The verb's words, for argparse."""
    add = parser.add_argument
    add("config", metavar="RUN.yaml", help=text("help.common.config"))
    add("overrides", nargs="*", metavar="key=value", help=text("help.common.overrides"))
    add("--longest", type=int, metavar="TOKENS", help=text("help.memory.longest"))
    add("--beside", type=float, metavar="GIB", help=text("help.memory.beside"))
    add("--vllm-share", type=float, metavar="S", help=text("help.memory.vllm-share"))
    add("--against", metavar="DIR", help=text("help.memory.against"))
    add("--json", action="store_true", help=text("help.common.json"))


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: a number that makes no sense.
    """
    if args.longest is not None and args.longest < 1:
        raise ConfigError(f"--longest must be at least 1, got {args.longest}")
    if args.beside is not None and not 0 <= args.beside < 1e6:
        raise ConfigError(f"--beside must be GiB from 0 up, got {args.beside:g}")
    if args.vllm_share is not None and not 0 <= args.vllm_share < 1:
        raise ConfigError(f"--vllm-share must be a fraction such as 0.55, got {args.vllm_share:g}")
    return Request(
        config=Path(args.config).expanduser(),
        overrides=tuple(args.overrides),
        longest=args.longest,
        beside=args.beside,
        vllm_share=args.vllm_share,
        against=Path(args.against).expanduser() if args.against else None,
        as_json=args.json,
    )


def run(request: Request) -> int:
    """Estimate, show, and return the exit code: 0 it fits (or nearly does not), 1 it does not fit or cannot be judged.

    Raises:
        ConfigError: nothing can be done with these words.
    """
    with own_stdout() as stdout:
        from ..run_config import read_run_config
        from .against import against
        from .estimate import estimate
        from .remedies import remedies
        from .room import TOO_LARGE, UNKNOWN, room

        config = read_run_config(request.config, request.overrides)
        made = estimate(config, longest_tokens=request.longest)
        place = room(config, beside_gib=request.beside, vllm_share=request.vllm_share, world=made.setup.world)
        verdict = place.judge(made)
        compared = against(config, request.against) if request.against else []
        cures = remedies(config, made, place.free_gib, longest_tokens=request.longest, others_gib=place.others_gib)
    if request.as_json:
        answer = made.as_dict() | {
            "verdict": verdict,
            "room": place.as_dict(),
            "remedies": [cure.as_dict() for cure in cures],
            "against": [one.as_dict() for one in compared],
        }
        print_json(answer, stdout)
    else:
        from rich.console import Console

        from .terminal import show

        show(made, place, cures, compared, Console(file=stdout, highlight=False))
    return 1 if verdict in (TOO_LARGE, UNKNOWN) else 0
