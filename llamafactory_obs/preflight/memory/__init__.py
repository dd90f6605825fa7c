"""How much memory a config needs, line by line."""
