"""Events and metrics of a run on one axis, in the terminal and as a picture. No torch."""
