"""Commands to a job that runs: another learning rate, a save, a stop, an evaluation, more logging."""
