"""Statistics on score matrices, returned as data frames. Nothing in here knows MLflow runs."""
