"""`resume`: what LlamaFactory will do with a config and its folder, what is lost or ignored, how to go on. No torch."""
