"""Helpers of tests: commands run as a user runs them, stand-ins for servers and schedulers, toys, runs to analyse."""
