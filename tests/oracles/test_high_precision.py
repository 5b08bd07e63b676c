"""The sweep against mpmath at 60 digits, written from the equations, down to entries below 1e-200."""

import mpmath
import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import ConstantDiagonal
from posbias.theory.encodings import ALiBi, DecayBias
from posbias.theory.mixing import ConstantMixing, PerLayer
from posbias.theory.rollout.dispatch import influence


def exact_row(architecture: Architecture, tokens: int) -> list:
    """e_nᵀ R_T ⋯ R_1 with R = (1 − λ)I + λ·mean_h softmax(δ·1[i = j] − m(i − j)), entry by entry."""
    row = [mpmath.mpf(0)] * (tokens - 1) + [mpmath.mpf(1)]
    layers = list(zip(architecture.stack, architecture.coefficients, strict=True))
    for layer, lam in reversed(layers):
        lam = mpmath.mpf(float(lam))
        out = [(1 - lam) * p for p in row]
        slopes = layer.positional.slopes_of(layer.heads)
        diagonal = layer.content.diagonal_of(layer.heads)
        for m, delta in zip(slopes, diagonal, strict=True):
            m, delta = mpmath.mpf(float(m)), mpmath.mpf(float(delta))
            for i in range(tokens):
                weights = [mpmath.exp(-m * (i - j)) for j in range(i)] + [mpmath.exp(delta)]
                total = mpmath.fsum(weights)
                for j in range(i + 1):
                    out[j] += lam * row[i] * weights[j] / total / layer.heads
        row = out
    return row


def worst_relative_deviation(architecture: Architecture, tokens: int) -> tuple[float, float]:
    """The largest relative deviation over entries above 1e-250, and the smallest such entry."""
    with mpmath.workdps(60):
        exact = exact_row(architecture, tokens)
        swept = influence(architecture, tokens).mass
        worst, least = mpmath.mpf(0), mpmath.mpf(1)
        for truth, got in zip(exact, swept, strict=True):
            if truth > mpmath.mpf("1e-250"):
                worst = max(worst, abs(mpmath.mpf(float(got)) / truth - 1))
                least = min(least, truth)
            else:
                assert got <= 1e-250
        return float(worst), float(least)


@given(
    st.integers(1, 30),
    st.lists(st.tuples(st.floats(0, 25), st.floats(-40, 40)), min_size=1, max_size=3),
    st.lists(st.floats(0.001, 1), min_size=1, max_size=3),
)
@examples(60)
def test_every_entry_is_right_to_1e_12(tokens, heads, mixing):
    slopes, diagonal = zip(*heads, strict=True)
    layer = Layer(heads=len(heads), positional=ALiBi(slopes), content=ConstantDiagonal(diagonal))
    worst, _ = worst_relative_deviation(Architecture(len(mixing), (layer,), PerLayer(mixing)), tokens)
    assert worst < 1e-12


def test_entries_below_1e_200_keep_their_digits():
    layer = Layer(heads=2, positional=ALiBi([12.0, 20.0]), content=ConstantDiagonal([3.0, -2.0]))
    worst, least = worst_relative_deviation(Architecture(3, (layer,), ConstantMixing(0.3)), 48)
    assert least < 1e-200
    assert worst < 1e-12


@pytest.mark.parametrize("lam", [1.0, 1.0 - 1e-8, 0.5])
@pytest.mark.parametrize("diagonal", [-40.0, -30.0])
@pytest.mark.parametrize("tokens", [2, 3, 4, 127, 128, 129, 130, 131, 257, 259])
def test_a_token_that_hardly_keeps_itself_keeps_its_digits(tokens, diagonal, lam):
    """What the last token keeps is (1 − λ) + λ·exp(δ)/Z, however small; no difference may be taken."""
    layer = Layer(content=ConstantDiagonal([diagonal]))
    mass = influence(Architecture(1, (layer,), ConstantMixing(lam)), tokens).mass
    with mpmath.workdps(40):
        own = mpmath.exp(diagonal)
        kept = (1 - mpmath.mpf(lam)) + mpmath.mpf(lam) * own / (own + tokens - 1)
    assert abs(mpmath.mpf(float(mass[-1])) / kept - 1) < 1e-12


@pytest.mark.parametrize("slope", [0.003, 0.0101])
def test_the_rounding_of_the_decay_does_not_add_up_over_a_long_text(slope):
    """One layer, one head: the last row is exp(−m·d)/Z exactly, checked down to 1e-240."""
    tokens = round(555 / slope)
    mass = influence(Architecture(1, (Layer(positional=DecayBias(slope)),), ConstantMixing(1.0)), tokens).mass
    with mpmath.workdps(40):
        m = mpmath.mpf(slope)
        total = -mpmath.expm1(-m * tokens) / -mpmath.expm1(-m)
        for position in np.linspace(0, tokens - 1, 200).astype(int):
            exact = mpmath.exp(-m * (tokens - 1 - int(position))) / total
            assert abs(mpmath.mpf(float(mass[position])) / exact - 1) < 1e-12
    assert mass[0] < 1e-238


@pytest.mark.parametrize("diagonal", [-1e6, -800.0, 800.0, 1e6])
@pytest.mark.parametrize("slope", [0.0, 0.5, 700.0, 900.0])
def test_logits_beyond_the_exponential_do_not_overflow(slope, diagonal):
    layer = Layer(positional=DecayBias(slope), content=ConstantDiagonal([diagonal]))
    mass = influence(Architecture(2, (layer,), ConstantMixing(0.5)), 6).mass
    with mpmath.workdps(50):
        exact = [float(entry) for entry in exact_row(Architecture(2, (layer,), ConstantMixing(0.5)), 6)]
    np.testing.assert_allclose(mass, exact, rtol=1e-12, atol=1e-250)
