"""Trainings of a study in containers: `launcher=docker`."""

from __future__ import annotations

OFFERS = {"launcher": {"docker": "biasbed.plugins.docker.launcher:DockerLauncher"}}
