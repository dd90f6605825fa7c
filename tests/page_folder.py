"""Small records and diagnoses made by hand, for the tests of the page, and a strict reader of its HTML."""

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

from llamafactory_obs.detect import Finding
from llamafactory_obs.diagnosis.result import Cause, Diagnosis
from llamafactory_obs.logs.curves import Curves
from llamafactory_obs.logs.read import read
from llamafactory_obs.record.schema import encode

PARTS = {"data_wait": 0.05, "forward": 0.3, "backward": 0.5, "optimizer": 0.1, "other": 0.05}


def row(step: int, **more) -> dict:
    """One step with every kind of number."""
    return {
        "step": step,
        "time": 1.7e9 + step,
        "segment": 0,
        "train/loss": 2.0 / (1 + step / 50) + 0.1 * math.sin(step),
        "train/lr": 1e-4 * (1 - step / 1e6),
        "train/grad_norm": 0.8 + 0.3 * math.cos(step),
        "data/supervised_ratio": 0.3 + 0.02 * math.sin(step),
        "data/padding_ratio": 0.1,
        "system/allocated_gib": 12.0,
        "system/reserved_gib": 15.0,
        "system/peak_allocated_gib": 14.0,
        "system/peak_reserved_gib": 16.0,
        "system/tokens_per_sec": 3000.0 + step % 7,
        "system/gpu_util": 0.9,
        **{f"time/{name}_s": seconds for name, seconds in PARTS.items()},
        "time/step_s": 1.0,
        **more,
    }


def probe(step: int, name: str, passed: bool, output: str, **more) -> dict:
    """One result row."""
    errors = [] if passed else ["wrong_arguments"]
    return {
        "step": step,
        "time": 1.7e9,
        "segment": 0,
        "checkpoint": f"checkpoint-{step}",
        "probe": name,
        "prompt": f"ask {name}",
        "passed": passed,
        "errors": errors,
        "details": [f"{error}: month is 7, expected 8" for error in errors],
        "output": output,
        "turns": [{"raw": output, "replies": [{"text": '{"orders": []}', "error": False}]}],
        "suite": "s",
        "suite_name": "golden",
        **more,
    }


def event(step: int, level: str = "info", **more) -> dict:
    base = {"step": step, "time": 1.7e9, "segment": 0, "kind": "alert", "level": level, "name": "vram"}
    return {**base, "title": "growth", "text": "grows", "evidence": {}, "action": "none", "suggest": {}, **more}


def layers(steps: list[int], names: list[str], value=lambda step, layer: 0.1 * (layer + 1)) -> list[dict]:
    """Rows of `layers.jsonl` with the header."""
    rows = [{"step": steps[0], "time": 0.0, "segment": 0, "names": names, "modules": []}]
    for step in steps:
        norms = [value(step, layer) for layer in range(len(names))]
        rows.append({"step": step, "time": 0.0, "segment": 0, "grad_norm": norms})
    return rows


def record(folder: Path, **files: list[dict] | dict) -> Path:
    """A record: `steps`, `layers`, `events`, `probes` as rows, `run` as one object."""
    obs = folder / "obs"
    obs.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        if name == "run":
            (obs / "run.json").write_bytes(encode(rows))
        else:
            (obs / f"{name}.jsonl").write_bytes(b"".join(map(encode, rows)))
    return folder


def curves_of(folder: Path, **files) -> Curves:
    return read(record(folder, **files))


def full(folder: Path, steps: int = 60) -> Curves:
    """A record with every part."""
    rows = [row(step) for step in range(1, steps + 1)]
    rows[-1]["eval/loss"] = 1.25
    rows[19]["eval/loss"] = 1.5
    return curves_of(
        folder,
        steps=rows,
        layers=layers(list(range(1, steps + 1)), ["layers.0", "layers.1", "norm"]),
        events=[event(0, kind="start", evidence={"max_steps": steps}), event(30, "warn"), event(40, "error")],
        probes=[probe(20, "call", False, "wrong"), probe(40, "call", True, "right"), probe(40, "talk", True, "hello")],
        run={
            "config": {"given": {"stage": "sft", "obs": {"mask_range": [0.25, 0.45]}, "callbacks": [{"vram": {}}]}},
            "model": {"name_or_path": "some/model", "parameters": {"total": 1000, "trainable": 10}},
        },
    )


def diagnosis(curves: Curves, *findings: Finding, **more) -> Diagnosis:
    values = {"verdict": "spike", "action": "keep", "headline": "One spike, gone again.", "causes": {}, **more}
    last = max(curves.steps, default=0)
    return Diagnosis(str(curves.path), curves.source, curves.kind, last, findings=list(findings), **values)


def spike(step: int = 33, **more) -> Finding:
    values = {
        "name": "spike",
        "text": "Loss rose at step 33. Halve the rate.",
        "evidence": {"loss": 9.75},
        "action": "kill",
        "suggest": {"learning_rate": 5e-05},
        "confidence": 0.9,
    }
    return Finding(level="error", step=step, **{**values, **more})


def cause(**more) -> Cause:
    return Cause(**{"name": "lr_change", "score": 0.8, "supports": ["rate rose"], "against": ["slowly"], **more})


class Strict(HTMLParser):
    """Every element is closed in order; keeps elements, texts and data blocks."""

    VOID = frozenset(("meta", "input", "path", "image"))

    def __init__(self, page: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == [], f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in self.VOID, f"<{tag}/>"
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)

    def ids(self) -> list[str]:
        return [attrs["id"] for _, attrs in self.elements if "id" in attrs]


def chart(page: str, name: str) -> str:
    """The HTML of one chart; fails where it is not drawn."""
    found = re.search(rf'<figure class="chart[^"]*" id="{name}".*?</figure>', page, re.S)
    assert found, f"no chart {name}"
    return found[0]


def data(html: str) -> dict:
    """The data block of a chart or a matrix."""
    return json.loads(re.search(r'<script type="application/json" class="data">(.*?)</script>', html, re.S)[1])


def points(series: dict) -> dict[int, object]:
    """Step -> value of one series of a data block."""
    step, out = 0, {}
    for by, value in zip(series["s"], series["v"], strict=True):
        step += by
        out[step] = value
    return out
