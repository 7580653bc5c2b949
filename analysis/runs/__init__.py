"""Runs that are compared: read from the server, collected, and checked for consistency."""
