"""Studies: sets of trainings that are planned, run, resumed and finished by one command."""
