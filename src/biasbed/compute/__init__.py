"""On what a training runs: ranks, precision, optimizers, checkpoints."""
