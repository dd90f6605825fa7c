"""What differs between two runs by their identities and settings, grouped, the weightiest first."""

from ..identity import difference
from ..plugin.registry import OWN
from .keys import counts, group_of_setting, place, rank
from .model import GROUPS, Difference, Differences, Run

#: config keys that say the same as a part of the identity
_SAME = {
    "per_device_train_batch_size": "per_device_batch",
    "model_name_or_path": "name_or_path",
    "model_max_length": "cutoff_len",
}
_UNKNOWN = object()


def differences(a: Run, b: Run) -> Differences:
    """Every fact that differs, once.

    What only one run knows is no difference: it is named in `unknown`.
    """
    both = bool(a.curves.run) and bool(b.curves.run)
    rows: dict[tuple[str, str], Difference] = {}
    folded: dict[str, None] = {}
    unknown: dict[str, None] = {}
    if both:
        for found in difference(_identity(a), _identity(b)):
            key = found["key"]
            placed = place(key)
            if placed is None:
                if key.startswith("hardware."):
                    folded[key] = None
                continue
            if _is_unknown(a, key, found["a"]) or _is_unknown(b, key, found["b"]):
                unknown[key] = None
                continue
            rows[placed] = Difference(placed[0], placed[1], found["a"], found["b"])
    told = {key.split(".")[-1] for _, key in rows}
    _settings(a, b, both, told, rows, folded)
    foreign = [_foreign(run) for run in (a, b)]
    if foreign[0] != foreign[1]:
        rows["config", "callbacks"] = Difference("config", "callbacks", *foreign)
    _tidy(rows, folded)
    ordered = sorted(rows.values(), key=lambda one: (GROUPS.index(one.group), rank(one.key)))
    compared = "identity" if both else "settings" if a.curves.settings and b.curves.settings else "nothing"
    return Differences(_noted(ordered), list(folded), list(unknown), compared)


def _identity(run: Run) -> dict:
    parts = ("code", "packages", "data", "model", "seeds", "precision", "hardware", "world", "determinism")
    identity = {name: run.curves.run[name] for name in parts if isinstance(run.curves.run.get(name), dict)}
    return identity | {"packages": identity.get("packages", {}) | {"sources": None, "main": None}}


def _foreign(run: Run) -> list[str]:
    """The callbacks of `callbacks:` that are not ours: these may change a training."""
    config = run.curves.run.get("config") or {}
    given = config.get("given")
    listed = given.get("callbacks") if isinstance(given, dict) else None
    names = []
    for entry in listed if isinstance(listed, list) else []:
        name = entry.get("name", next(iter(entry), "")) if isinstance(entry, dict) else entry
        if str(name) not in OWN:
            names.append(f"{name} {entry.get('args') or ''}".strip() if isinstance(entry, dict) else str(name))
    return names


def _is_unknown(run: Run, key: str, value: object) -> bool:
    """Null because nobody could tell, not because there is nothing."""
    if value is not None:
        return False
    section = key.split(".")[0]
    if not isinstance(run.curves.run.get(section), dict):
        return True
    listed = run.curves.run.get("unknown")
    names = [row.get("what") for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    return any(isinstance(name, str) and (key == name or key.startswith(f"{name}.")) for name in names)


def _settings(a: Run, b: Run, both: bool, told: set[str], rows: dict, folded: dict) -> None:
    mine, other = a.curves.settings, b.curves.settings
    if not mine or not other:
        return
    shared = both or {*mine} == {*other}
    for key in dict.fromkeys([*mine, *other]):
        x, y = mine.get(key, _UNKNOWN), other.get(key, _UNKNOWN)
        if x is _UNKNOWN or y is _UNKNOWN:
            if not shared:  # a config as written leaves defaults out: nothing to compare with
                continue
            x, y = (None if x is _UNKNOWN else x), (None if y is _UNKNOWN else y)
        if _equal(x, y) or key in told or _SAME.get(key) in told:
            continue
        if counts(key, mine, other):
            group = group_of_setting(key)
            rows[group, key] = Difference(group, key, x, y)
        else:
            folded[key] = None


def _equal(x: object, y: object) -> bool:
    return x == y and isinstance(x, bool) == isinstance(y, bool)


def _tidy(rows: dict[tuple[str, str], Difference], folded: dict) -> None:
    """Drop what another row says already."""
    keys = {key for _, key in rows}
    if any(key.startswith(("lora_", "oft_")) or key == "finetuning_type" for key in keys):
        for placed in [one for one in rows if one[0] == "model" and one[1].startswith("peft")]:
            del rows[placed]
    weights = ("model", "weights.sha256")
    for name in (("model", "name_or_path"), ("model", "model_name_or_path")):
        if (
            name in rows
            and weights not in rows
            and ("model", "config_sha256") not in rows
            and name[1] == "name_or_path"
        ):
            del rows[name]  # the same weights from another place
            folded["model.name_or_path"] = None
    if ("model", "parameters.trainable") in rows and "finetuning_type" in keys:
        del rows["model", "parameters.trainable"]
    if ("world", "global_batch") in rows and not {"world_size", "nodes"} & keys:
        del rows["world", "global_batch"]
    if ("precision", "compute") in rows:
        for name in ("bf16", "fp16", "pure_bf16", "compute_dtype"):
            rows.pop(("precision", name), None)


def _noted(rows: list[Difference]) -> list[Difference]:
    """Rows of the training set that differ although the files and all settings of the data are the same."""
    of_data = [row for row in rows if row.group in ("data", "template")]
    seed = any(row.group == "seed" and row.key in ("seed", "data_seed") for row in rows)
    if seed and of_data and all(row.key.startswith("rows.") for row in of_data):
        drawn = [Difference(row.group, row.key, row.a, row.b, "follows_seed") for row in of_data]
        rest = [row for row in rows if row.group not in ("data", "template")]
        return [*rest, *drawn]
    return rows
