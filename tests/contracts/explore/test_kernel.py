"""kernel.js in a real browser gives what the engines give, for every architecture that it has a form for."""

from importlib.resources import files

import architectures as drawn
import numpy as np
import pytest
from architectures import spans
from hypothesis import assume, given
from hypothesis import strategies as st

from posbias.core.errors import InvalidValueError
from posbias.reports.explore.kernel import MOST_DENSE, exported, not_expressed, sweeps
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.distance import KerpleLog
from posbias.theory.encodings import ALiBi
from posbias.theory.masks import Chunked, Dilated, Prefix, SlidingWindow
from posbias.theory.mixing import Connection, ConstantMixing, HyperConnections
from posbias.theory.normalisers import ReLU
from posbias.theory.rollout import influence

TOLERANCE = 1e-9
"""Relative, above 1e-250; below it both may be 0."""
ASKED = """([architecture, tokens, depth]) => {
  const { mass, lost } = window.kernel.influence(architecture, tokens, depth);
  return [Array.from(mass), lost];
}"""


@pytest.fixture(scope="module")
def ask(browser):
    """Profile and what sinks took, as the browser computes them."""
    source = files("posbias.reports.explore").joinpath("kernel.js").read_text(encoding="utf-8")
    page = browser.new_page()
    page.evaluate(f"() => {{ {source}\n window.kernel = kernel; }}")

    def asked(architecture: Architecture, tokens: int):
        mass, lost = page.evaluate(ASKED, [exported(architecture, tokens), tokens, architecture.depth])
        return np.array(mass), lost

    yield asked
    page.close()


def agree(ask, architecture, tokens):
    mass, lost = ask(architecture, tokens)
    truth = influence(architecture, tokens)
    seen = np.maximum(mass, truth.mass) > 1e-250
    np.testing.assert_allclose(mass[seen], truth.mass[seen], rtol=TOLERANCE)
    assert lost == pytest.approx(truth.missing_mass, abs=TOLERANCE)


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


def test_what_has_no_form_is_refused_with_the_reason():
    streams = HyperConnections((Connection(((1.0,),), (1.0,)),), (1.0,))
    for architecture, said in (
        (Architecture(2, streams=streams), "residual streams"),
        (Architecture(2, (Layer(normaliser=ReLU()),)), "softmax"),
        (Architecture(2, (Layer(mask=Dilated(2)),)), "other keys"),
    ):
        with pytest.raises(InvalidValueError, match=said):
            exported(architecture, 16)
    with pytest.raises(InvalidValueError, match=r"tokens: expected at most 2,048"):
        exported(Architecture(1, (Layer(positional=KerpleLog((1.0,))),)), MOST_DENSE + 1)
