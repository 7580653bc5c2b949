"""Tracking: run folders and their journals, MLflow, and archives of runs."""
