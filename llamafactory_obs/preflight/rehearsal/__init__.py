"""Short trainings of the same config on chosen rows: the smoke run and the single-batch test."""
