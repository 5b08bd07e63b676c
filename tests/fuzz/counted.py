"""How many examples a test of this folder has tried."""

from collections import Counter

EXAMPLES: Counter[str] = Counter()
"""By what was tried, in this test; `conftest` counts those of `@given`, a state machine its own."""
