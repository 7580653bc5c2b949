"""Selection of runs and of the steps at which their results count."""
