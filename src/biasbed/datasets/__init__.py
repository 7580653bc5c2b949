"""Data sets: a class each, which finds, checks and opens its images."""
