"""What differs between runs, where their curves part, and which of them is better on what evidence.

The package is imported by `llamafactory-obs --help`, so it imports nothing itself.
"""
