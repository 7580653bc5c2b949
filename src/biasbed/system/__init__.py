"""Processes, files, terminal, and the identity of code. Nothing of this is about training."""
