"""Training: one job from its settings to the end of its loop."""
