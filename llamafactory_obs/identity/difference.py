"""What differs between two identities, key by key."""

NAMES = ("role", "name", "what")
"""The keys that name a row of a list, joined by dots."""


def difference(a: dict, b: dict) -> list[dict]:
    """The differences of two identities.

    Mappings are walked, packages compared one by one (`packages.<name>`: None for "not installed"), rows of lists
    matched by their names or else by position, lists of plain values compared whole. A missing key equals None; what
    only one side has is one row with its whole value.

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
        a, b = _keyed(a, b)
    if not (isinstance(a, dict) and isinstance(b, dict)):
        if not _equal(a, b):
            rows.append({"key": key, "a": a, "b": b})
        return
    for name in [*a, *(name for name in b if name not in a)]:
        if f"{key}.{name}" != "packages.main":  # the same versions as in the list
            _walk(f"{key}.{name}" if key else str(name), a.get(name), b.get(name), rows)


def _equal(a: object, b: object) -> bool:
    if a is None or b is None:
        return _holds_nothing(a) and _holds_nothing(b)
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def _holds_nothing(value: object) -> bool:
    return value is None or (isinstance(value, dict) and all(map(_holds_nothing, value.values())))


def _versions(rows: object) -> dict[str, str]:
    return dict(str(row).split("==", 1) for row in (rows if isinstance(rows, list) else []) if "==" in str(row))


def _keyed(a: list, b: list) -> tuple[object, object]:
    """Lists of mappings as mappings: by their names where these are all there and unique, else by position."""
    if not all(isinstance(row, dict) for row in (*a, *b)):
        return a, b
    names = [[".".join(str(row[part]) for part in NAMES if part in row) for row in rows] for rows in (a, b)]
    for own in names:
        if not all(own) or len(set(own)) < len(own):
            names = [[str(index) for index in range(len(rows))] for rows in (a, b)]
            break
    return dict(zip(names[0], a, strict=True)), dict(zip(names[1], b, strict=True))
