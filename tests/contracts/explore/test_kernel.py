"""kernel.js in a real browser gives what the engines give, for every architecture that it has a form for."""

from importlib.resources import files

import architectures as drawn
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from posbias.errors import InvalidValueError
from posbias.explore.kernel import MOST_DENSE, exported, not_expressed, sweeps
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.closed_forms.collapse_bounds import log_collapse_bound
from posbias.theory.distance import KerpleLog
from posbias.theory.encodings import ALiBi
from posbias.theory.hyper_connections import Connection, HyperConnections
from posbias.theory.masks import Chunked, Dilated, Prefix, SlidingWindow
from posbias.theory.masks.visible import Banded, Split
from posbias.theory.mixing import ConstantMixing
from posbias.theory.normalisers import ReLU
from posbias.theory.rollout import influence
from posbias.theory.rollout.kernel import layer_kernel

TOLERANCE = 1e-9
"""Relative, above 1e-250; below it both may be 0."""
ASKED = """([architecture, tokens, depth]) => {
  const { mass, lost } = window.kernel.influence(architecture, tokens, depth);
  return [Array.from(mass), lost, window.kernel.collapse(architecture, tokens, depth)];
}"""


@pytest.fixture(scope="module")
def ask(browser):
    """Profile, what sinks took, and ln of the collapse bound by layer, as the browser computes them."""
    source = files("posbias.explore").joinpath("kernel.js").read_text(encoding="utf-8")
    page = browser.new_page()
    page.evaluate(f"() => {{ {source}\n window.kernel = kernel; }}")

    def asked(architecture: Architecture, tokens: int):
        numbers = [exported(architecture, tokens), tokens, architecture.depth]
        mass, lost, collapse = page.evaluate(ASKED, numbers)
        return np.array(mass), lost, np.array([-np.inf if one is None else one for one in collapse])

    yield asked
    page.close()


def agree(ask, architecture, tokens):
    mass, lost, _ = ask(architecture, tokens)
    truth = influence(architecture, tokens)
    seen = np.maximum(mass, truth.mass) > 1e-250
    np.testing.assert_allclose(mass[seen], truth.mass[seen], rtol=TOLERANCE)
    assert lost == pytest.approx(truth.missing_mass, abs=TOLERANCE)


def spans(longest: int, prefix: int) -> st.SearchStrategy:
    """Masks whose keys are a run and the first few, or pieces of the text."""
    return drawn.masks(longest, prefix).filter(lambda mask: isinstance(mask, Banded | Split))


@given(
    drawn.architectures(mask=spans(400, drawn.SHORTEST), scaled=True),
    st.integers(drawn.SHORTEST, drawn.LONGEST),
)
def test_the_browser_gives_the_profile_that_the_engines_give(ask, architecture, tokens):
    assume(not_expressed(architecture) is None)
    agree(ask, architecture, tokens)


@given(
    drawn.architectures(mask=spans(1000, 300), positional=drawn.exponential),
    st.integers(drawn.LONGEST, 1500),
)
def test_the_browser_sweeps_longer_texts_right(ask, architecture, tokens):
    assume(all(map(sweeps, architecture.layers)))
    agree(ask, architecture, tokens)


@pytest.mark.parametrize("mask", [SlidingWindow(1000, 4), Chunked(3000), Prefix(2000)])
def test_the_browser_sweeps_a_long_text_right(ask, mask):
    layers = (Layer(8, mask, ALiBi()), Layer(8, positional=ALiBi()))
    agree(ask, Architecture(6, layers, ConstantMixing(0.3)), 20_000)


def test_the_collapse_bound_of_the_browser_is_that_of_the_theorem(ask):
    layers = (Layer(2, positional=ALiBi((0.01, 0.0))), Layer(2, positional=KerpleLog((0.5,))))
    architecture = Architecture(4, layers, ConstantMixing(0.4))
    _, _, bound = ask(architecture, 64)
    floors = np.array([layer_kernel(layer, 64)[:, 0].min() for layer in architecture.stack])
    np.testing.assert_allclose(
        bound, log_collapse_bound(floors, 1, architecture.coefficients), rtol=TOLERANCE
    )


def test_what_has_no_form_is_refused_with_the_reason():
    streams = HyperConnections((Connection(((1.0,),), (1.0,)),), (1.0,))
    for architecture, said in (
        (Architecture(2, streams=streams), "residual streams"),
        (Architecture(2, (Layer(normaliser=ReLU()),)), "softmax"),
        (Architecture(2, (Layer(mask=Dilated(2)),)), "other keys"),
    ):
        with pytest.raises(InvalidValueError, match=said):
            exported(architecture, 16)
    with pytest.raises(InvalidValueError, match=r"tokens: 2,049 given"):
        exported(Architecture(1, (Layer(positional=KerpleLog((1.0,))),)), MOST_DENSE + 1)
