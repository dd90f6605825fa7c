"""Gate 1: the untuned base model is scored before anything is changed."""
