"""Sweeps: searches for hyper-parameters, in which every trial is a training of its own."""
