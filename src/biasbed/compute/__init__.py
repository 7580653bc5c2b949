"""Compute resources of a training: processes, devices, precision, optimizers, checkpoints."""
