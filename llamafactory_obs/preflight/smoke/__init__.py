"""Gate 3: what a run of ten steps shows."""
