"""losslint and ftdoctor, where they are installed: which logs do they flag?"""

import json
import subprocess
import sys
from pathlib import Path

#: tool -> its words with the file left out
_CALLS = {
    "losslint": ["check", "--format", "json", "--color", "never"],
    "ftdoctor": ["diagnose", "--format", "json"],
}


def flagged_by_tools(files: list[str], folder: Path, python: str | None) -> dict[str, dict[str, bool]]:
    """tool and version -> file -> flagged. A tool that is not there is named once and left out."""
    python = python or sys.executable
    answers = {}
    for tool, words in _CALLS.items():
        code = f"import importlib.metadata as m; print(m.version('{tool}'))"
        version = subprocess.run([python, "-c", code], capture_output=True, text=True)
        if version.returncode:
            print(f"{tool} is not installed in {python}: left out (--tools PYTHON)", file=sys.stderr)
            continue
        answers[f"{tool} {version.stdout.strip()}"] = {
            file: _flags([str(Path(python).parent / tool), *words, str(folder / file)]) for file in files
        }
    return answers


def _flags(words: list[str]) -> bool:
    """A warning or an error of the tool; a file it cannot read is not flagged."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return False
    findings = answer.get("findings", []) if isinstance(answer, dict) else []
    # that a log has no evaluation is advice, no illness
    told = [f["severity"].lower() for f in findings if f.get("check") != "no_eval"]
    return any(level in ("warning", "error", "critical") for level in told)
