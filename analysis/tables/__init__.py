"""Tables of scores as others publish them, read into one score per line: the door of `compare`.

text -> cells without markup (`formats`) -> head (`head`) -> meaning of columns (`roles`) -> axes, units, directions
(`understand`) -> one line per score (`understood`). Loads neither torch nor MLflow.

Answers: How is a table that somebody brings read, and what was left out?
"""
