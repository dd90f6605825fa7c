"""What the run's own settings call right: the range of the mask ratio, the limit of the memory."""

from ..settings import LIMIT_GIB


def mask_range(run: dict) -> tuple[float, float] | None:
    """The wanted range of the share of tokens with a label, as `label_mask` takes it; None where there is none."""
    given = _given(run)
    usual = _pair(_part(given, "obs").get("mask_range")) or (0.2, 0.4)
    stage = given.get("stage")
    by_stage = {"pt": (0.99, 1.0), "rm": None, "dpo": None, "kto": None}.get(
        stage if isinstance(stage, str) else None, usual
    )
    return _pair(_options(given, "label_mask").get("range")) or by_stage


def memory_limit(run: dict) -> float:
    """GiB that the run may use, as `vram` takes it."""
    given = _given(run)
    for value in (_options(given, "vram").get("limit_gib"), _part(given, "obs").get("limit_gib")):
        if isinstance(value, (int, float)) and value > 0:
            return float(value)
    return LIMIT_GIB


def _given(run: dict) -> dict:
    return _part(_part(run, "config"), "given")


def _part(node: dict, key: str) -> dict:
    value = node.get(key)
    return value if isinstance(value, dict) else {}


def _options(given: dict, name: str) -> dict:
    """The options of a callback in the YAML: `{vram: {limit_gib: 24}}` or `{name: vram, args: {limit_gib: 24}}`."""
    entries = given.get("callbacks")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            if name in entry:
                return _part(entry, name)
            if entry.get("name") == name:
                return _part(entry, "args")
    return {}


def _pair(value: object) -> tuple[float, float] | None:
    numbers = list(value) if isinstance(value, (list, tuple)) else []
    if len(numbers) == 2 and all(isinstance(x, (int, float)) for x in numbers) and numbers[0] < numbers[1]:
        return float(numbers[0]), float(numbers[1])
    return None
