"""How we get into LlamaFactory: the automatic loading, the `callbacks:` and `obs:` keys, names to classes."""
