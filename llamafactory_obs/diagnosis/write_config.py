"""`--write-config`: the run's config with what the diagnosis suggests, each change with its reason beside it."""

import re
from pathlib import Path

from ..errors import ConfigError
from ..identity.run_name import SHORT, number_name
from ..logs.curves import Curves
from ..texts import text
from ..texts.findings import title
from .result import Diagnosis

_TOP_KEY = re.compile(r"^([A-Za-z_][\w-]*)\s*:")
_HIDDEN = "***"  # what the record has in place of a secret


def next_config(curves: Curves, diagnosis: Diagnosis, source: Path | None = None) -> str:
    """The next run's config, as YAML.

    The keys of all findings are merged, the gravest finding's first. Comments and order of a `source` that is YAML
    stay. The output folder becomes a new one: in the old one LlamaFactory would go on from its last checkpoint, with
    the old learning rate.

    Args:
        source: the run's own config; None takes what the record holds.

    Raises:
        ConfigError: nothing to change, or no config.
    """
    import yaml

    given, source_text = _given(curves, source)
    changes, why = _changes(diagnosis, given)
    if not changes:
        raise ConfigError(
            f"{curves.path}: the diagnosis ({diagnosis.verdict}) suggests no key to change, so there is no next config"
        )
    name = run_name(given, changes)
    more = {"run_name": name}
    if isinstance(given.get("output_dir"), str):
        more["output_dir"] = str(Path(given["output_dir"]).parent / name)
    if given.get("resume_from_checkpoint"):
        more["resume_from_checkpoint"] = None
    why |= {key: text(f"diagnose.next.{key}") for key in ("run_name", "output_dir", "resume_from_checkpoint")}
    wanted = {**given, **changes, **more}
    head = text("diagnose.next.head", path=curves.path, verdict=diagnosis.verdict, action=diagnosis.action)
    body = _dumped(wanted, {**changes, **more}, why)
    if source_text is not None:
        body = _edited(source_text, {**changes, **more}, why)
    if yaml.safe_load(body) != wanted:  # a layout that line by line editing does not understand
        body = _dumped(wanted, {**changes, **more}, why)
    return f"# {head}\n{body}"


def run_name(given: dict, changes: dict) -> str:
    """The run's name with the changed values in it, e.g. `qwen3-4b-lora-lr5e-5`; paths and words are left out."""
    base = given.get("run_name")
    if not isinstance(base, str) or not base:
        model = str(given.get("model_name_or_path") or "run").rstrip("/").rpartition("/")[2]
        base = "-".join(part for part in (model.lower(), str(given.get("finetuning_type") or "")) if part)
    for key, value in changes.items():
        short = SHORT.get(key)
        if isinstance(value, bool):
            base = f"{base}-{'' if value else 'no-'}{key.replace('_', '-')}"
        elif short:
            base = re.sub(rf"-{re.escape(short)}[\d.][\d.e+-]*(?=-|$)", "", base)
            base = f"{base}-{short}{number_name(value)}"
    return base


def _given(curves: Curves, source: Path | None) -> tuple[dict, str | None]:
    """The run's config, and its text where that can be edited line by line."""
    import yaml

    if source is None:
        given = (curves.run.get("config") or {}).get("given")
        if not isinstance(given, dict) or not given:
            raise ConfigError(f"{curves.path}: no run.json with the run's config; give it with --from RUN.yaml")
        return {key: value for key, value in given.items() if value != _HIDDEN}, None
    if source.exists() and not source.is_file():
        raise ConfigError(f"{source} is no file; give the run's YAML")
    try:
        text = source.read_text(encoding="utf-8-sig")
        given = yaml.safe_load(text)
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read ({error.strerror or error})") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: is no YAML ({' '.join(str(error).split())[:100]})") from None
    if not isinstance(given, dict):
        raise ConfigError(f"{source}: is no LlamaFactory config (wanted `key: value` lines)")
    return given, None if text.lstrip().startswith("{") else text


def _changes(diagnosis: Diagnosis, given: dict) -> tuple[dict, dict[str, str]]:
    """The keys to change and why; the gravest finding wins."""
    changes: dict = {}
    why: dict[str, str] = {}
    for finding in diagnosis.findings:
        for key, value in finding.suggest.items():
            if key in changes or given.get(key) == value:
                continue
            changes[key] = value
            about = {"finding": title(finding.name), "since": finding.evidence.get("since", finding.step)}
            why[key] = text("diagnose.next.at", **about)
            if key in given:
                why[key] = text("diagnose.next.was", was=given[key], **about)
    return changes, why


def _line(key: str, value: object, why: dict[str, str]) -> str:
    import yaml

    written = yaml.safe_dump({key: value}, default_flow_style=True, width=10**6).strip()[1:-1]
    return f"{written}  # {why[key]}\n" if key in why else f"{written}\n"


def _dumped(wanted: dict, changed: dict, why: dict[str, str]) -> str:
    import yaml

    lines = []
    for key, value in wanted.items():
        if key in changed:
            lines.append(_line(key, value, why))
        else:
            lines.append(yaml.safe_dump({key: value}, sort_keys=False, allow_unicode=True))
    return "".join(lines)


def _edited(text: str, changed: dict, why: dict[str, str]) -> str:
    """The text with the values of top-level keys replaced; keys that are not there come at the end."""
    lines, out, done, skipping = text.splitlines(keepends=True), [], set(), False
    for line in lines:
        match = _TOP_KEY.match(line)
        if match is None:
            indented = line[:1] in (" ", "\t", "-") and line.strip()
            if not (skipping and indented):
                out.append(line)
                skipping = skipping and not line.strip()
            continue
        skipping = match[1] in changed
        if skipping:
            out.append(_line(match[1], changed[match[1]], why))
            done.add(match[1])
        else:
            out.append(line)
    if out and not out[-1].endswith("\n"):
        out[-1] += "\n"
    return "".join(out) + "".join(_line(key, value, why) for key, value in changed.items() if key not in done)
