"""What callbacks ask of the Trainer, until its step comes."""


class Requests:
    """Wishes to `save` or `stop`, each with the step at which it is due."""

    def __init__(self):
        self._wishes: list[tuple[int, str]] = []

    def add(self, what: str, due: int) -> None:
        """Ask for it at the end of step `due`."""
        self._wishes.append((due, what))

    def obey(self, step: int, control) -> None:
        """Put what is due by now into the Trainer's control."""
        due = [what for when, what in self._wishes if when <= step]
        self._wishes = [(when, what) for when, what in self._wishes if when > step]
        control.should_save = control.should_save or "save" in due
        control.should_training_stop = control.should_training_stop or "stop" in due
