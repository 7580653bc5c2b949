"""Which images there are: one class a data set."""
