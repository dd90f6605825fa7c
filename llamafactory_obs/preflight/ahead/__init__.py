"""What would fail later and can be seen now, in the config and its `output_dir`. No model is loaded, no GPU needed."""

from .checks import ahead_checks

__all__ = ["ahead_checks"]
