"""One thing that the verb says, with its weight; the words stand in `texts/<language>/resume.toml`."""

from dataclasses import dataclass, field

from ..texts import text

#: of a point. info: good to know; warn: the exit code is 1; grave: and `--exec` does not start without `--accept`
INFO, WARN, GRAVE = "info", "warn", "grave"
_COMMANDS = ("scale_rate", "running", "move")


@dataclass(frozen=True)
class Point:
    """One finding.

    Attributes:
        name: for programs; the text is `resume.<name>`.
        level: info | warn | grave.
        values: what the text is filled with; no words of a language.
        fix: what to do: the text `resume.fix.<fix>` with the same values; "" where there is nothing to do.
    """

    name: str
    level: str = INFO
    values: dict = field(default_factory=dict)
    fix: str = ""

    def say(self, lang: str | None = None) -> str:
        """In words."""
        return text(f"resume.{self.name}", lang, **self.values)

    def cure(self, lang: str | None = None) -> str:
        """What to do, in words; "" for nothing."""
        return text(f"resume.fix.{self.fix}", lang, **self.values) if self.fix else ""

    @property
    def is_command(self) -> bool:
        """Is what to do a command, to be copied whole?"""
        return self.fix in _COMMANDS

    def as_dict(self) -> dict:
        """For `--json`, in English."""
        return {
            "name": self.name,
            "level": self.level,
            "text": self.say("en"),
            "fix": self.cure("en"),
            "values": self.values,
        }


def worst(points: list[Point]) -> str:
    """The gravest level of all; info where there are none."""
    levels = {point.level for point in points}
    return next((level for level in (GRAVE, WARN) if level in levels), INFO)
