"""`replay`: the batch of a recorded step, rebuilt and run again."""
