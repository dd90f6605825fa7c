"""`llamafactory-obs watch`: a run on a live terminal screen. No torch."""
