"""Public Python functions: the commands' functions for models, data and loops of the user's own.

`import biasbed` finds each function and class by name (`biasbed.__all__`), and imports its module on first use. Nothing
here computes a number by itself: commands and these functions call the same code.
"""
