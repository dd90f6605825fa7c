"""The facts of a run, computed in one place: `summarize(output_dir) -> RunSummary`. Imports no torch."""

from .loaded import Loaded, load
from .model import Evaluations, Gate, Note, OtherSuite, Price, ProbeMatrix, RaisedAlert, RunSummary, SavedCheckpoint
from .parts import Brief, Data, Machine, Memory, Session, Spread, Used, Why
from .plain import as_dict
from .summarize import summarize

__all__ = [
    "Brief",
    "Data",
    "Evaluations",
    "Gate",
    "Loaded",
    "Machine",
    "Memory",
    "Note",
    "OtherSuite",
    "Price",
    "ProbeMatrix",
    "RaisedAlert",
    "RunSummary",
    "SavedCheckpoint",
    "Session",
    "Spread",
    "Used",
    "Why",
    "as_dict",
    "load",
    "summarize",
]
