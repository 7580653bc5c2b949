"""Which runs count, and at which steps."""
