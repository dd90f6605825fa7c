"""`llamafactory-obs probe DIR [--watch]`: what the verb does with its words."""

import hashlib
import importlib.util
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from ..errors import ConfigError
from ..output import as_json, own_stdout
from ..plugin.names import did_you_mean
from ..suite import Suite, load_suite, shipped_suite
from ..texts import text
from .facts import read_facts
from .formats import FORMATS
from .results import BASE
from .scan import step_of
from .scorers import check_scorers
from .session import Options, Session
from .show import View
from .watcher import Watcher

#: a checkpoint saved this second is looked at again; above the watcher's own second of unrest
_FRESH_S = 3.0


@dataclass(frozen=True)
class Request:
    """The words of one call.

    Attributes:
        folder: an output folder or one `checkpoint-N` in it.
        suite: the suite's file, None for the shipped probes.
        watch: go on until the training has ended and all is probed.
        latest_only: of several waiting checkpoints only the newest.
        again: probe what is probed already once more.
        as_json: one object per result on stdout.
        poll_s: seconds between two looks.
        patience_s: without `watch`: seconds to wait for a backend that is not there.
        copies: where private copies go, None for `<output_dir>/obs/probe/copies`.
        since_segment, parent: of the training that started this process.
    """

    folder: Path
    suite: Path | None = None
    watch: bool = False
    latest_only: bool = False
    again: bool = False
    as_json: bool = False
    poll_s: float = 2.0
    patience_s: float = 60.0
    copies: Path | None = None
    since_segment: int = 0
    parent: int | None = None
    options: Options = field(default_factory=Options)


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: a number that makes no sense.
    """
    if not 0.05 <= args.poll <= 3600:
        raise ConfigError(f"--poll must be between 0.05 and 3600 seconds, got {args.poll:g}")
    if not 0 <= args.patience <= 86400:
        raise ConfigError(f"--patience must be between 0 and 86400 seconds, got {args.patience:g}")
    return Request(
        folder=Path(args.dir).expanduser(),
        suite=Path(args.suite).expanduser() if args.suite else None,
        watch=args.watch,
        latest_only=args.latest_only,
        again=args.again,
        as_json=args.json,
        poll_s=args.poll,
        patience_s=args.patience,
        copies=Path(args.copies).expanduser() if args.copies else None,
        since_segment=args.segment,
        parent=args.parent,
        options=Options(
            backend=args.backend,
            endpoint=args.endpoint,
            model=args.model,
            template=args.template,
            tool_format=args.tool_format,
            device=args.device,
            baseline=not args.no_baseline,
            again=args.again,
        ),
    )


def run(request: Request) -> int:
    """Probe, show, and return the exit code: 0 the newest checkpoint passes, 1 it does not or one could not be probed.

    Raises:
        ConfigError: nothing can be done with these words.
    """
    os.environ.setdefault("LLAMAFACTORY_VERBOSITY", "WARN")
    with own_stdout() as stdout:
        return _run(request, stdout)


def _run(request: Request, stdout: TextIO) -> int:
    suite = load_suite(request.suite or shipped_suite())
    output_dir, only = _place(request)
    _check_names(request.options)
    check_scorers(suite)
    view = View(sys.stderr if request.as_json else stdout)
    emit = (lambda row: print(as_json(row, stdout), file=stdout, flush=True)) if request.as_json else None
    session = Session(output_dir, suite, request.options, view, emit)
    known = {row["content"] for row in session.rows()}
    watcher = Watcher(
        output_dir,
        _asked(suite, request.options),
        session.probe,
        say=lambda line: view.say(line, "dim"),
        recorded=session.recorded,
        poll_s=request.poll_s,
        latest_only=request.latest_only,
        since_segment=request.since_segment,
        parent=request.parent,
        copies=request.copies,
        hard_links=read_facts(output_dir).writes_by_rename,
        again=request.again,
        only=only,
        known=known.__contains__,
    )
    try:
        if request.watch:
            watcher.watch()
        else:
            _once(watcher, request.patience_s)
    finally:
        session.close()
    return _conclude(request, session, watcher, only)


def _asked(suite: Suite, options: Options) -> str:
    """What makes one asking another: the suite, and a rendering that was asked for."""
    if options.template is None and options.tool_format is None:
        return suite.sha256
    return hashlib.sha256(f"{suite.sha256} {options.template} {options.tool_format}".encode()).hexdigest()


def _once(watcher: Watcher, patience_s: float) -> None:
    """What is there, each once; what must wait for a server, or was saved this second, is tried again for a while."""
    start = time.monotonic()
    while not watcher.once():
        waited = time.monotonic() - start
        if waited >= patience_s or not (watcher.waits or (watcher.incomplete and waited < _FRESH_S)):
            return
        time.sleep(min(2.0, max(0.1, patience_s - waited)) if watcher.waits else 0.5)


def _conclude(request: Request, session: Session, watcher: Watcher, only: str | None) -> int:
    """The matrix and the exit code."""
    names = [probe.name for probe in session.suite.probes]
    columns = session.columns()
    if request.as_json and not request.watch:
        for (_, name), rows in columns.items():
            for row in rows.values() if only in (None, name) else ():
                session.emit(row)  # what was recorded before; each row once
    session.view.matrix(columns, names)
    for name, why in watcher.incomplete.items():
        session.view.say(text("probe.say.incomplete", name=name, why=why), "warn")
    for name, why in watcher.unprobed.items():
        session.view.say(text("probe.say.unprobed", name=name, why=why), "warn")
    probed = {key: rows for key, rows in columns.items() if key[1] != BASE and only in (None, key[1])}
    if not probed:
        if not watcher.unprobed and not watcher.incomplete:
            session.view.say(text("probe.say.none") if only is None else text("probe.say.not_found", only=only), "warn")
        return 1
    (step, _), newest = list(probed.items())[-1]
    passed = all(name in newest and newest[name]["passed"] for name in names)
    broken = [name for name, at in watcher.broken.items() if at > step and only in (None, name)]
    for name in broken:
        session.view.say(text("probe.say.newer_broken", name=name), "warn")
    return 0 if passed and not watcher.unprobed and not broken else 1


def _place(request: Request) -> tuple[Path, str | None]:
    """The output folder, and the one checkpoint in it that is meant."""
    folder = request.folder
    if folder.is_file():
        raise ConfigError(f"{folder} is a file; name the run's output_dir or one checkpoint-N folder")
    if not folder.exists() and not request.watch:
        raise ConfigError(f"{folder}: no such folder; name the run's output_dir (--watch waits until it appears)")
    place = folder.resolve()  # "." or a link may be a checkpoint, into which nothing may be written
    copies = request.copies.resolve() if request.copies else place
    if step_of(place.name) is None and any(step_of(part) is not None for part in (*place.parts, *copies.parts)):
        raise ConfigError(f"{folder if copies == place else copies} lies in a checkpoint; nothing is written there")
    if step_of(place.name) is not None:
        if request.watch:
            raise ConfigError(f"--watch wants the run's output_dir, {folder} is one checkpoint; leave --watch out")
        return (folder.parent if folder.name == place.name else place.parent), place.name
    return folder, None


def _check_names(options: Options) -> None:
    """An unknown template or tool format is said before anybody waits for a checkpoint."""
    if options.tool_format is not None and options.tool_format not in FORMATS:
        hint = did_you_mean(options.tool_format, FORMATS)
        raise ConfigError(f"--tool-format: unknown {options.tool_format!r}{hint} (known: {', '.join(FORMATS)})")
    if options.template in (None, "chat"):
        return
    if importlib.util.find_spec("llamafactory") is None:
        raise ConfigError(f"--template {options.template}: LlamaFactory is not installed here; use `chat`")
    from llamafactory.data.template import TEMPLATES

    if options.template not in TEMPLATES:
        raise ConfigError(
            f"--template: LlamaFactory has no {options.template!r}{did_you_mean(options.template, TEMPLATES)}"
        )
