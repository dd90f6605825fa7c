"""When the clock of a run's machine was wrong: set, or asleep."""

#: it is taken for wrong where it disagrees with the steps' own seconds by more than this, and this share
_SECONDS, _SHARE = 60.0, 0.05


def is_wrong(by_clock: float, measured: float) -> bool:
    """Do the seconds between rows disagree with what the same steps measured of themselves (`time/step_s`)?"""
    return abs(by_clock - measured) > max(_SECONDS, _SHARE * measured)
