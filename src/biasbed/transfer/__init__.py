"""Tracked runs as one file, from one tracking server to another."""
