"""`report`: the record sheet of a run, every line measured; notes of people; the bundle that goes with the weights."""
