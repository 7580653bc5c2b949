"""Comparisons made from selected scores: of rules, in the strict setting, by shape bias, laid out as a paper."""
