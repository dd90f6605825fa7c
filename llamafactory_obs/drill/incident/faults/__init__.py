"""The faults that drills make in a training of their own: callbacks that spoil what they are named after."""
