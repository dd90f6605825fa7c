"""`llamafactory-obs baseline RUN.yaml`: what the verb does with its words."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from ...errors import ConfigError
from ...output import own_stdout, print_json
from ...texts import text
from ..result import FAIL, PASS, WARN

BACKENDS = ("auto", "vllm", "local")


@dataclass(frozen=True)
class Request:
    """The words of one call.

    Attributes:
        config: the run config, YAML or JSON.
        overrides: `key=value`, as for `train`.
        suite: None for `obs: {suite: ...}` or the three fixed probes.
        endpoint: None for that of the `probe` callback or the default.
        backend: one of `BACKENDS`.
        device: of the local backend.
        out: None for `RUN.baseline.json` beside the config, or `obs: {baseline: ...}`.
        again: measure although this very baseline is recorded.
        as_json: one object on stdout.
    """

    config: Path
    overrides: tuple[str, ...] = ()
    suite: Path | None = None
    endpoint: str | None = None
    backend: str = "auto"
    device: str = "auto"
    out: Path | None = None
    again: bool = False
    as_json: bool = False


def add_options(parser) -> None:
    """The verb's words, for argparse."""
    add = parser.add_argument
    add("config", metavar="RUN.yaml", help=text("help.common.config"))
    add("overrides", nargs="*", metavar="key=value", help=text("help.common.overrides"))
    add("--suite", metavar="FILE", help=text("help.baseline.suite"))
    add("--endpoint", metavar="URL", help=text("help.baseline.endpoint"))
    add("--backend", choices=BACKENDS, default="auto", help=text("help.baseline.backend"))
    add("--device", default="auto", help=text("help.baseline.device"))
    add("--out", metavar="FILE.json", help=text("help.baseline.out"))
    add("--again", action="store_true", help=text("help.baseline.again"))
    add("--json", action="store_true", help=text("help.baseline.json"))


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: words that do not go together.
    """
    if args.endpoint and args.backend == "local":
        raise ConfigError("--endpoint names a vLLM server, --backend local asks none; leave one out")
    return Request(
        config=Path(args.config).expanduser(),
        overrides=tuple(args.overrides),
        suite=Path(args.suite).expanduser() if args.suite else None,
        endpoint=args.endpoint,
        backend=args.backend,
        device=args.device,
        out=Path(args.out).expanduser() if args.out else None,
        again=args.again,
        as_json=args.json,
    )


def run(request: Request) -> int:
    """Measure, record, show, and return the exit code: 0 all four layers are recorded, 1 one cannot be judged.

    Raises:
        ConfigError: nothing can be done with these words.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("LLAMAFACTORY_VERBOSITY", "WARN")
    with own_stdout() as stdout:
        return _run(request, stdout)


def _run(request: Request, stdout: TextIO) -> int:
    from ...probe.scorers import check_scorers
    from ...probe.session import Options
    from ...probe.show import View
    from ..run_config import parsed, quiet, read_run_config
    from . import recorded
    from .base_model import find_base_model
    from .conditions import facts_of, renderer_of, rendering_of, suite_of
    from .measure import measure
    from .server import endpoint_of
    from .terminal import show

    config = read_run_config(request.config, request.overrides)
    suite = suite_of(config, request.suite)
    check_scorers(suite)
    path = request.out or recorded.place(config)
    recorded.writable(path)
    endpoint = endpoint_of(config, request.endpoint)
    with parsed(config) as arguments, quiet():
        base, facts = find_base_model(arguments), facts_of(config, arguments)
        renderer = renderer_of(base, facts)
        rendering = rendering_of(renderer, facts, suite)
    view = View(sys.stderr if request.as_json else stdout, str(path))
    earlier = None if request.again else _same(path, config, base, facts, suite, request.backend)
    if earlier is None:
        options = Options(backend=request.backend, device=request.device)
        record = measure(config, base, facts, suite, renderer, rendering, options, endpoint, view)
        kept = recorded.write(path, record)
        said = text("baseline.command.recorded", path=path) + (
            text("baseline.command.kept", file=kept.name) if kept else ""
        )
    else:
        record, said = earlier, text("baseline.command.already", path=path)
    layers = show(record, suite, view)
    view.say(said)
    table = config.settings.baseline
    if table is not None and not request.out and not recorded.is_record(table):
        view.say(text("baseline.command.table", table=table), "warn")
    if request.as_json:
        print_json(record, stdout)
    return 1 if layers == FAIL else 0


def _same(path, config, base, facts, suite, backend: str) -> dict | None:
    """The record that is there, where it holds for this very config and the backend that was asked for."""
    from ...probe.judge import LAYERS
    from . import recorded
    from .gate import judge_record

    try:
        record = recorded.read(path)
    except (FileNotFoundError, recorded.Damaged):
        return None
    if backend not in ("auto", (record.get("backend") or {}).get("name")):
        return None
    checks = judge_record(record, config, base, facts, suite, "")
    holds = all(check.status in (PASS, WARN) for check in checks if check.name != "layers")
    return record if holds and set(LAYERS) <= set(record["scores"]) else None
