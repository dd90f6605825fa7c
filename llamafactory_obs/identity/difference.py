"""What differs between two identities, key by key."""

from .unknown import is_unknown


def difference(a: dict, b: dict) -> list[dict]:
    """The differences of two identities.

    Mappings are walked, packages compared one by one (`packages.<name>`: None for "not installed"), rows that have a
    `name` or a `what` matched by it, other lists compared whole. A missing key equals None.

    Returns:
        `[{"key": dotted, "a": value, "b": value}]` in the order of the identity; `[]` for equal identities.
    """
    rows: list[dict] = []
    _walk("", a, b, rows)
    listed = [row["key"] for row in rows if row["key"].startswith("packages.") and row["key"] != "packages.sha256"]
    return [row for row in rows if not (row["key"] == "packages.sha256" and listed)]


def statement(identity: dict) -> str:
    """One line on repeatability: `deterministic: no (reason; reason)`."""
    row = identity.get("determinism") or {}
    reasons = "; ".join(row.get("reasons") or [])
    return f"deterministic: {row.get('deterministic', 'unknown')}" + (f" ({reasons})" if reasons else "")


def _walk(key: str, a: object, b: object, rows: list[dict]) -> None:
    if key == "packages.list":
        a, b, key = _versions(a), _versions(b), "packages"
    elif isinstance(a, list) and isinstance(b, list):
        by_name = _by_name(a), _by_name(b)
        if None not in by_name:
            a, b = by_name
    if is_unknown(a) or is_unknown(b) or not (_is_mapping(a) and _is_mapping(b)):
        if not _equal(a, b):
            rows.append({"key": key, "a": a, "b": b})
        return
    a, b = a or {}, b or {}
    for name in [*a, *(name for name in b if name not in a)]:
        if f"{key}.{name}" != "packages.main":  # the same versions as in the list
            _walk(f"{key}.{name}" if key else str(name), a.get(name), b.get(name), rows)


def _is_mapping(value: object) -> bool:
    return value is None or isinstance(value, dict)


def _equal(a: object, b: object) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def _versions(rows: object) -> dict[str, str]:
    return dict(str(row).split("==", 1) for row in rows or [] if "==" in str(row))


def _by_name(rows: list) -> dict | None:
    """Rows by their name; None where they have none or it repeats. `[]` is an empty mapping."""
    if not all(isinstance(row, dict) and ("name" in row or "what" in row) for row in rows):
        return None
    names = [".".join(str(row[part]) for part in ("role", "name", "what") if part in row) for row in rows]
    return dict(zip(names, rows, strict=True)) if len(set(names)) == len(names) else None
