"""`report --bundle`: one archive with all that a run left behind, and the fingerprint of its weights.

Unpacked it is a run's folder: every verb reads it. The same run gives the same bytes: names in order, no times, owners
or names of machines in the archive.
"""

from .pack import check_bundle, pack
from .told import told
from .verify import verify

__all__ = ["check_bundle", "pack", "told", "verify"]
