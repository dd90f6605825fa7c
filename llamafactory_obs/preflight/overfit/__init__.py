"""The single-batch test: can model and pipeline learn at all?"""
