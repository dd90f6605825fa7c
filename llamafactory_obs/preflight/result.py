"""What every gate answers."""

from dataclasses import dataclass

#: of a check; a gate has the worst of its checks, where `warn` counts as `pass`
PASS, WARN, FAIL, ERROR, SKIPPED = "pass", "warn", "fail", "error", "skipped"


@dataclass(frozen=True)
class Check:
    """One thing looked at.

    Attributes:
        name: for programs, e.g. `share`.
        status: pass | warn | fail | error (could not be judged) | skipped (does not apply; `detail` says why).
        value: what was found: a number, a text, None where nothing could be.
        want: what was wanted, in the same unit.
        detail: one line for people.
        fix: what to change, empty where nothing is to be done.
        confirmable: a person who knows the data may accept a failure of this one.
    """

    name: str
    status: str
    value: object
    want: object
    detail: str
    fix: str = ""
    confirmable: bool = False

    def as_dict(self) -> dict:
        """The check of the contract: name, status, value, want, detail."""
        return {key: getattr(self, key) for key in ("name", "status", "value", "want", "detail")}


def gate_status(checks: list[Check]) -> str:
    """The status of a gate: error before fail (what was not judged may be worse), pass, skipped where all were."""
    found = {check.status for check in checks}
    for status in (ERROR, FAIL):
        if status in found:
            return status
    return PASS if found & {PASS, WARN} else SKIPPED if found else ERROR


def as_gate(name: str, checks: list[Check]) -> dict:
    """`{"name", "status", "checks": [...], "fix"}` as in the contract.

    `fix`: the cure of what failed, then of what could not be judged; where there are several, each in a line of its own
    after the name of its check.
    """
    order = sorted((c for c in checks if c.status in (ERROR, FAIL)), key=lambda c: (c.status == ERROR, c.confirmable))
    cures = {}
    for check in order:
        if check.fix:
            cures.setdefault(check.fix, []).append(check.name)
    lines = [f"{', '.join(names)}: {fix}" if len(cures) > 1 else fix for fix, names in cures.items()]
    return {
        "name": name,
        "status": gate_status(checks),
        "checks": [check.as_dict() for check in checks],
        "fix": "\n".join(lines),
    }
