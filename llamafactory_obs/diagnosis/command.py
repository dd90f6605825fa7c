"""`llamafactory-obs diagnose DIR_OR_FILE...`: what the verb does with its words."""

import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..output import own_stdout, print_json
from ..output_file import check_apart, check_output, write_new
from ..texts import text


@dataclass(frozen=True)
class Request:
    """The words of one call.

    Attributes:
        paths: folders and files.
        as_json: one object on stdout.
        html: where the page goes.
        next_config: where the next run's config goes.
        from_config: the config of the run that is diagnosed, where its record does not hold it.
    """

    paths: tuple[Path, ...]
    as_json: bool = False
    html: Path | None = None
    next_config: Path | None = None
    from_config: Path | None = None


def add_options(parser) -> None:
    """The verb's words, for argparse."""
    add = parser.add_argument
    add("paths", nargs="+", metavar="DIR_OR_FILE", help=text("help.diagnose.paths"))
    add("--json", action="store_true", help=text("help.common.json"))
    add("--html", metavar="FILE", help=text("help.diagnose.html"))
    add("--write-config", metavar="NEXT.yaml", help=text("help.diagnose.write-config"))
    add("--from", dest="from_config", metavar="RUN.yaml", help=text("help.diagnose.from"))


def request(args) -> Request:
    """The words as argparse gives them, checked.

    Raises:
        ConfigError: words that do not go together.
    """
    paths = tuple(Path(path).expanduser() for path in args.paths)
    if len(paths) > 1 and (args.html or args.write_config):
        raise ConfigError("--html and --write-config are for one run: give one DIR_OR_FILE")
    if args.from_config and not args.write_config:
        raise ConfigError("--from belongs to --write-config: say where the next config goes")
    optional = (args.html, args.write_config, args.from_config)
    return Request(paths, args.json, *(Path(word).expanduser() if word else None for word in optional))


def run(request: Request) -> int:
    """Diagnose, show, and return the exit code: 0; 1 a run must be killed; 2 bad input, or a file that is no such log.

    Raises:
        ConfigError: nothing can be done with these words.
    """
    with own_stdout() as stdout:
        answers = [_diagnose(path, request) for path in request.paths]
    if request.as_json:
        print_json(answers[0][0] if len(answers) == 1 else {"runs": [answer for answer, _ in answers]}, stdout)
    else:
        from .show import show

        for number, (_, diagnosed) in enumerate(answers):
            if diagnosed is not None:
                print(file=stdout) if number else None
                show(*diagnosed, file=stdout)
    from ..charts.text import visible

    for answer, _ in answers:
        if "error" in answer:
            print(f"llamafactory-obs: {visible(answer['error'])}", file=sys.stderr)
        for key in ("html", "config"):
            if key in answer:
                print(text("diagnose.written", path=answer[key]), file=sys.stderr)
    if any("error" in answer or answer["verdict"] == "not_a_training_log" for answer, _ in answers):
        return 2
    return 1 if any(answer["action"] == "kill" for answer, _ in answers) else 0


def _diagnose(path: Path, request: Request) -> tuple[dict, tuple | None]:
    """The answer for programs, and the log with its diagnosis; an error instead where the path is no log."""
    from ..logs.read import read
    from .judge import judge

    try:
        page, config = _places(request)
        curves = read(path)
        diagnosis = judge(curves)
        if not len(curves) and not diagnosis.findings and diagnosis.verdict != "not_a_training_log":
            raise ConfigError(f"{path}: a log without rows: nothing has been logged in it yet")
        answer = as_dict(diagnosis)
        if config is not None:
            from .write_config import next_config

            following = next_config(curves, diagnosis, request.from_config)
        if page is not None:
            from .page import write

            write(curves, diagnosis, page)
            answer["html"] = str(request.html)
        if config is not None:
            write_new(config, following)
            answer["config"] = str(request.next_config)
    except ConfigError as error:
        return {"path": str(path), "error": " ".join(str(error).split())}, None
    return answer, (curves, diagnosis)


def _places(request: Request) -> tuple[Path | None, Path | None]:
    """Where the page and the next config may go; both are refused before one of them is written."""
    from ..charts import check_page

    page = check_page(request.html) if request.html is not None else None
    config = request.next_config
    config = check_output(config, option="--write-config") if config is not None else None
    check_apart(page, config)
    return page, config


def as_dict(diagnosis) -> dict:
    """A Diagnosis as plain JSON values; the causes lie under the finding they belong to."""
    findings = []
    for number, finding in enumerate(diagnosis.findings):
        entry = finding.to_dict()
        entry["causes"] = [_cause(cause) for cause in diagnosis.causes.get(number, [])]
        findings.append(entry)
    names = ("path", "source", "kind", "steps", "verdict", "action", "headline")
    plain = {name: getattr(diagnosis, name) for name in names}
    resumes = [one.as_dict() for one in diagnosis.resumes]
    return plain | {"findings": findings, "resumes": resumes, "unseen": diagnosis.unseen, "notes": diagnosis.notes}


def _cause(cause) -> dict:
    return {name: getattr(cause, name) for name in ("name", "score", "supports", "against", "missing", "next")}
