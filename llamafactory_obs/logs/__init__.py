"""Any training log as columns: our own record, LlamaFactory's, the Trainer's, ms-swift's, a console's. No torch."""
