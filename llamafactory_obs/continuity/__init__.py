"""Does a training go on where it was interrupted? One judge, live (`callbacks/continuity.py`) and offline (`offline`).

It compares learning rate, loss, gradient norm, position in the data and, where they were logged, the samples: step by
step where an earlier start had made the same steps, else the rows before the resume with those after it.
"""
