"""One training: who opens what, and the loop."""
