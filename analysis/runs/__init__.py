"""Which runs are compared: read, collected, checked for what must be alike."""
