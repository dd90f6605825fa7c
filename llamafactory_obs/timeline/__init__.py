"""`timeline`: the events and metrics of a run on one step axis, in the terminal and as a picture. No torch."""
