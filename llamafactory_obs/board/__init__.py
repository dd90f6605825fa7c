"""The verb `board`: several runs side by side on a local web page, live and read-only. Imports no torch."""
