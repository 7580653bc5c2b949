"""Every sentence of the report against a slow recomputation of what it claims, from the numbers that were logged.

`studies` are the constructed studies, `tests_by_hand`, `facts` and `simulated` the recomputation (nothing of
`biasbed.analysis`), `page` takes a report apart, `claims` has the table of sentences and their checkers.
"""
