"""The predictive half: from an architecture, as a value, to the influence of every position.

Only NumPy, SciPy and Numba are needed here; nothing here knows a model or a measurement.
"""
