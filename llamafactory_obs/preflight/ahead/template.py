"""Do the checkpoints in `output_dir` carry the base model's chat template?"""

import hashlib
import json
from pathlib import Path

from ... import texts
from ...identity.model import find_folder
from ..result import FAIL, PASS, SKIPPED, WARN, Check
from .effective import Effective
from .start import checkpoints_in

NAME = "saved_template"


def check_saved_template(run: Effective) -> list[Check]:
    """`saved_template`: a server that is given a checkpoint renders prompts with the template that lies in it."""
    output = run.output_dir
    names = checkpoints_in(output)
    if not names:
        return [Check(NAME, SKIPPED, None, None, texts.text("ahead.template.none_yet"))]
    base = find_folder(run.get("model_name_or_path"), run.get("model_revision"), None, run.get("cache_dir"))
    if base is None:
        return [
            Check(NAME, SKIPPED, None, None, texts.text("ahead.template.not_here", model=run.get("model_name_or_path")))
        ]
    wanted = template_of(base)
    found = {name: template_of(output / name) for name in names}
    torn = [name for name in names if contradicts(output / name)]
    if torn:
        text = texts.text("ahead.template.torn", names=_some(torn))
        fix = texts.text("ahead.template.keep_one")
        return [Check(NAME, FAIL, torn, None, text, fix)]
    if wanted is None:
        one = digest(found[names[-1]])
        text = f"the base model has no chat template; {_some(names)} has {f'one ({one})' if one else 'none either'}"
        return [Check(NAME, PASS, one, None, text)]
    none = [name for name in names if found[name] is None]
    if none:
        text = texts.text("ahead.template.lost", names=_some(none), digest=digest(wanted))
        return [Check(NAME, FAIL, None, digest(wanted), text, texts.text("ahead.template.copy", base=base))]
    other = [name for name in names if found[name] != wanted]
    if other:
        text = texts.text(
            "ahead.template.other", names=_some(other), theirs=digest(found[other[0]]), digest=digest(wanted)
        )
        text += texts.text("ahead.template.other_prompts")
        fix = texts.text("ahead.template.meant")
        return [Check(NAME, WARN, digest(found[other[0]]), digest(wanted), text, fix)]
    text = texts.text("ahead.template.same", names=_some(names), digest=digest(wanted))
    return [Check(NAME, PASS, digest(wanted), digest(wanted), text)]


def template_of(folder: Path) -> str | None:
    """The chat template that transformers would take from a folder: chat_template.jinja, else tokenizer_config.json;
    None for none. Several named ones as JSON."""
    try:
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return _in_config(folder)


def contradicts(folder: Path) -> bool:
    """Are there two templates in a folder, and different ones?"""
    inside = _in_config(folder)
    return inside is not None and (folder / "chat_template.jinja").is_file() and template_of(folder) != inside


def digest(template: str | None) -> str:
    """The first 8 digits of a template's SHA-256, "" for none."""
    return hashlib.sha256(template.encode()).hexdigest()[:8] if template is not None else ""


def _in_config(folder: Path) -> str | None:
    try:
        value = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get("chat_template")
    except (OSError, ValueError, AttributeError):
        return None
    return value if value is None or isinstance(value, str) else json.dumps(value, sort_keys=True)


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else texts.text("ahead.template.more", first=names[0], count=len(names) - 1)
