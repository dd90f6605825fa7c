"""The mask gate: which tokens of this very run config are in the loss, and whether they are the right ones."""
