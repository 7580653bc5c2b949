"""Matrices in, frames out: nothing here knows of a run."""
