"""Trust beyond accuracy, from stored scores: proper scores, calibration, detection of shifted images, conformal sets.

No torch here. Functions take arrays of NumPy; `docs/trust.md` has formulas and sources.
"""
