"""Incidents made on purpose in short trainings of the same config, to see what they do and whether they are seen."""
