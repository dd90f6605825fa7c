"""Comparing JSON values: by type too, but a number is a number however it is written."""


def same(one: object, other: object) -> bool:
    """JSON equality: "8" is not 8 and true is not 1, but 8.0 is 8 (JSON Schema, draft 2020-12, 4.2.2)."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return one == other
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def fits(arguments: dict, wanted: dict[str, list]) -> bool:
    """Has each named argument one of the values that are right for it?"""
    return all(name in arguments and any(same(arguments[name], v) for v in values) for name, values in wanted.items())
