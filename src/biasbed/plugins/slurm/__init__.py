"""Trainings of a study as jobs of a cluster: `launcher=slurm`."""

from __future__ import annotations

OFFERS = {"launcher": {"slurm": "biasbed.plugins.slurm.launcher:SlurmLauncher"}}
