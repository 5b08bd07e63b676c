"""How far each engine is from the plain dense product, over drawn architectures: the table of accuracy.

Every entry above 1e-250 counts, by its own relative deviation; the dense product is
`dense_influence` of tests/support in float64. The table is printed at the end of `make bench`.
"""

import numpy as np
import pytest
from architectures import SHORTEST, architectures, curved, exponential, positionals
from dense import dense_influence
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posbias.theory.masks import Causal, Full, Prefix, SlidingWindow
from posbias.theory.rollout.dispatch import engines, influence

WORST: dict[str, list[float]] = {}
"""Engine → worst relative deviation, smallest entry compared, entries compared, architectures."""
windows = st.builds(SlidingWindow, st.integers(1, 300), st.sampled_from([0, 0, 1, 3]))
ahead = st.one_of(st.builds(Prefix, st.integers(1, SHORTEST)), st.just(Full()))
CASES = {
    "sweep, causal": ("sweep", st.just(Causal()), exponential, 1e-12),
    "sweep, windows": ("sweep", windows, exponential, 1e-12),
    "sweep, prefix and full": ("sweep", ahead, exponential, 1e-12),
    "fft, causal and windows": ("fft", st.one_of(st.just(Causal()), windows), curved, 5e-10),
    "stream, all": ("stream", None, positionals, 1e-12),
}


@pytest.mark.parametrize("case", CASES)
def test_accuracy(case):
    method, mask, encoding, tolerance = CASES[case]
    record = WORST.setdefault(case, [0.0, 1.0, 0, 0])

    lengths = st.integers(300, 1500) if method == "fft" else st.integers(SHORTEST, 300)

    @given(architectures(mask=mask, positional=encoding), lengths)
    @settings(
        max_examples=60 if method == "fft" else 300,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    def drawn(architecture, tokens):
        if not all(method in engines(layer) for layer in architecture.layers):
            return
        fast = influence(architecture, tokens, method=method).mass
        plain = dense_influence(architecture, tokens)
        large = plain > 1e-250
        deviation = np.abs(fast[large] / plain[large] - 1).max(initial=0.0)
        record[0] = max(record[0], float(deviation))
        record[1] = min(record[1], float(plain[large].min(initial=1.0)))
        record[2] += int(large.sum())
        record[3] += 1
        assert deviation <= tolerance

    drawn()
    assert record[3] >= 30
