"""Tables of scores as others publish them, read into one score per line: the door of `compare`.

text -> cells without markup (`formats`) -> head (`head`) -> what columns hold (`roles`) -> layout (`layout`) -> a line
per method (`score_table`), with the lines and data sets that count -> what each data set is (`column_meanings`) ->
numbers (`reader`) -> all that was understood (`understood`). Loads neither torch nor MLflow.

Answers: How is a table that somebody brings read, and what was left out?
"""
