"""Evaluation: decisions of models and their measures, label maps, reports, and the command `evaluate`."""
