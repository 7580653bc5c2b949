"""Public functions of biasbed for Python: thin, over the functions that commands call."""
