"""What a model decides, and what is said of its decisions."""
