"""Where numbers are kept: the run's folder, its journal, MLflow, and files of runs."""
