"""What `diagnose` says of a run and what `summarize` knows of it: `python -m llamafactory_obs.board.examine DIR`.

A process of its own with a low priority: reading a long record takes seconds, and neither the training nor the
board's visitors shall wait for it. Prints one JSON object.
"""

import contextlib
import os
import sys

import orjson

from ..errors import ConfigError
from ..texts import LANGUAGES, speaking, texts
from ..texts.findings import title
from .said import shown, told
from .said import title as titles


def examine(folder: str) -> dict:
    """What `diagnose` says: `action`, `steps`, `said` (language -> `_said`); `facts`; or `error`, one line."""
    from ..diagnosis.judge import judge
    from ..logs.read import read

    said = {}
    try:
        curves = read(folder)
        for lang in LANGUAGES:  # causes and headline are made in the language that is spoken
            with speaking(lang):
                diagnosis = judge(curves)
                said[lang] = _said(diagnosis, lang)
    except ConfigError as error:
        return {"error": shown(" ".join(str(error).split()), 400)}
    return {"action": diagnosis.action, "steps": diagnosis.steps, "said": said, "facts": _facts(folder)}


def _said(diagnosis, lang: str) -> dict:
    """`verdict`, `headline`, `findings`, `unseen`, as texts."""
    names = texts("causes", lang)
    findings = []
    for number, finding in enumerate(diagnosis.findings[:50]):
        causes = [
            {
                "name": names.get(f"title.{cause.name}", title(cause.name, lang)),
                "supports": [shown(one) for one in cause.supports[:4]],
                "next": shown(cause.next),
            }
            for cause in diagnosis.causes.get(number, [])[:3]
        ]
        text = told(finding.name, finding.step, finding.text, finding.evidence, finding.until)[lang]
        about = {"title": titles(finding.name)[lang], "level": finding.level, "step": finding.step}
        findings.append(about | {"text": text, "causes": causes})
    return {
        "verdict": texts("diagnose", lang).get(f"verdict.{diagnosis.verdict}", title(diagnosis.verdict, lang)),
        "headline": shown(diagnosis.headline),
        "findings": findings,
        "unseen": [shown(one) for one in diagnosis.unseen[:30]],
    }


def _facts(folder: str) -> dict:
    """What the card needs and the live record does not say: the memory limit, and the share of labels that is right."""
    from ..summary.summarize import summarize

    try:
        summary = summarize(folder)
    except ConfigError:
        return {}
    return {"limit_gib": summary.memory.limit_gib, "wanted_ratio": summary.data.wanted_ratio}


def _yield_to_others() -> None:
    os.nice(10)
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import psutil

        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)


if __name__ == "__main__":
    _yield_to_others()
    sys.stdout.buffer.write(orjson.dumps(examine(sys.argv[1])))
