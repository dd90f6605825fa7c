"""The gates before a run: what would waste it, said before the clock of a rented GPU runs. One module per gate."""
