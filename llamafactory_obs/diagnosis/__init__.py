"""From curves to a verdict: the shape of a run, whether to kill or keep it, why, and what to change. No torch."""
