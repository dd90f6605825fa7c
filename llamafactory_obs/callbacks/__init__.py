"""The callbacks, one file each, named as in YAML, and the machinery they share.

The path of a number: `taps` (the Trainer's own calls) -> a callback -> `arrivals` (device to host, never waiting) ->
`pipeline` (one row a step) -> `ranks` (all processes as one) -> `recorder` (the run record, the alerts, the terminal).
"""
