"""A suite: prompts, tools, simulated tool replies, expectations. Imports no torch, transformers or LlamaFactory."""

from .load import load_suite, shipped_suite
from .model import AfterError, Call, Expect, ExpectedCall, Probe, Reply, Suite, Tool
from .simulate import ToolReply, answer

__all__ = [
    "AfterError",
    "Call",
    "Expect",
    "ExpectedCall",
    "Probe",
    "Reply",
    "Suite",
    "Tool",
    "ToolReply",
    "answer",
    "load_suite",
    "shipped_suite",
]
