"""A saved checkpoint: what a resume needs of it, and whether it loads and computes."""
