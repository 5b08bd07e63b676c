"""bounds.js in a real browser gives what the theorems give, and the page draws it where they apply."""

from dataclasses import replace
from importlib.resources import files

import architectures as drawn
import numpy as np
import pytest
from architectures import spans
from browser import Opened
from hypothesis import assume, given
from hypothesis import strategies as st

from posbias.reports.explore.kernel import exported, not_expressed
from posbias.reports.explore.page import page
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import ConstantDiagonal
from posbias.theory.distance import KerpleLog
from posbias.theory.encodings import ALiBi
from posbias.theory.masks import Causal, Prefix, SlidingWindow
from posbias.theory.mixing import ConstantMixing
from posbias.theory.rollout import influence
from posbias.theory.rollout.kernel import layer_kernel
from posbias_papers.closed_forms.collapse_bounds import decay_envelope, log_collapse_bound
from posbias_papers.closed_forms.residual_bounds import self_bound, window_bound

TOLERANCE = 1e-9

BOUND = """([name, architecture, tokens, depth]) => {
  const found = window.bounds[name](architecture, tokens, depth);
  return found && (found.upper ? [found.upper, found.lower].map((side) => side && Array.from(side)) : found);
}"""
COLUMN = """([place, name]) => {
  const table = document.querySelector(`#${place} table`);
  const column = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === name);
  return column < 0 ? null : [...table.tBodies[0].rows].map((row) => Number(row.cells[column].textContent));
}"""


@pytest.fixture(scope="module")
def tab(browser):
    """A page with both scripts."""
    page = browser.new_page()
    for name in ("kernel", "bounds"):
        source = files("posbias.reports.explore").joinpath(f"{name}.js").read_text(encoding="utf-8")
        page.evaluate(f"() => {{ {source}\n window.{name} = {name}; }}")
    yield page
    page.close()


@pytest.fixture(scope="module")
def bound(tab):
    """A bound as the browser computes it, None where it says nothing."""

    def asked(name: str, architecture: Architecture, tokens: int):
        return tab.evaluate(BOUND, [name, exported(architecture, tokens), tokens, architecture.depth])

    return asked


def kernels(architecture, tokens):
    return np.array([layer_kernel(layer, tokens) for layer in architecture.stack])


def test_the_collapse_bound_of_the_browser_is_that_of_the_theorem(bound):
    layers = (Layer(2, positional=ALiBi((0.01, 0.0))), Layer(2, positional=KerpleLog((0.5,))))
    architecture = Architecture(4, layers, ConstantMixing(0.4))
    floors = kernels(architecture, 64)[:, :, 0].min(axis=1)
    expected = log_collapse_bound(floors, 1, architecture.coefficients)
    np.testing.assert_allclose(bound("collapse", architecture, 64), expected, rtol=TOLERANCE)


@pytest.mark.parametrize("mask", [Causal(), SlidingWindow(4), Prefix(3)])
def test_what_the_last_token_keeps_in_the_browser_is_what_the_theorem_says(bound, mask):
    architecture = Architecture(7, (Layer(2, mask, ALiBi((0.2, 0.0))),), ConstantMixing(0.4))
    own = kernels(architecture, 40)[0, -1, -1]
    found = bound("kept", architecture, 40)
    np.testing.assert_allclose(found, self_bound(architecture.coefficients, float(own)), rtol=TOLERANCE)
    mass = influence(architecture, 40).mass[-1]
    assert found[-1] <= mass * (1 + TOLERANCE)
    # where no query sees a later key, the last token has nothing from any other
    assert isinstance(mask, Prefix) or found[-1] == pytest.approx(mass, rel=TOLERANCE)


@pytest.mark.parametrize("encoding", [ALiBi((0.2, 0.0)), KerpleLog((0.5,))])
def test_the_bound_under_a_window_in_the_browser_is_that_of_the_theorem(bound, encoding):
    tokens = 12
    architecture = Architecture(40, (Layer(2, SlidingWindow(3), encoding),), ConstantMixing(0.8))
    floor = min(row[:query].sum() for query, row in enumerate(kernels(architecture, tokens)[0]) if query)
    found = np.exp(bound("moves", architecture, tokens))
    expected = [window_bound(architecture.coefficients[:t], float(floor), tokens - 1) for t in range(1, 41)]
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE)
    assert 1 - influence(architecture, tokens).mass[0] <= found[-1] < 0.5
    assert bound("moves", replace(architecture, depth=tokens - 2), tokens) is None


@pytest.mark.parametrize("tokens", [9, 200])
def test_the_envelope_in_the_browser_is_that_of_the_theorem(bound, tokens):
    architecture = Architecture(
        5, (Layer(content=ConstantDiagonal((0.5,)), positional=ALiBi((0.7,))),), ConstantMixing(1.0)
    )
    envelope = decay_envelope(0.7, 0.5, tokens)
    lower, upper = envelope.log_bounds(np.arange(tokens)[::-1], 5)
    found = bound("envelope", architecture, tokens)
    np.testing.assert_allclose(found, [upper, lower], rtol=TOLERANCE)


@given(drawn.architectures(mask=spans(40, 1), positional=drawn.exponential), st.integers(3, 40))
def test_the_envelope_holds_wherever_the_browser_gives_one(bound, architecture, tokens):
    assume(not_expressed(architecture) is None)
    architecture = replace(architecture, mixing=ConstantMixing(1.0))
    found = bound("envelope", architecture, tokens)
    assume(found is not None)
    mass = influence(architecture, tokens).mass
    seen = mass > 1e-250
    assert (np.log(mass[seen]) <= np.array(found[0])[seen] + TOLERANCE).all()
    # what the mask shows nobody is nowhere above 0, so a lower bound is there for all positions or none
    assert found[1] is None or (np.log(np.maximum(mass, 1e-250)) >= np.array(found[1]) - TOLERANCE).all()


def test_there_is_no_envelope_with_a_residual_connection_or_other_logits(bound):
    assert (
        bound("envelope", Architecture(4, (Layer(positional=ALiBi((0.5,))),), ConstantMixing(0.9)), 16)
        is None
    )
    assert (
        bound("envelope", Architecture(4, (Layer(positional=KerpleLog((1.0,))),), ConstantMixing(1.0)), 16)
        is None
    )
    windowed = Architecture(4, (Layer(1, SlidingWindow(3), ALiBi((0.5,))),), ConstantMixing(1.0))
    assert bound("envelope", windowed, 16)[1] is None


def test_theorems_are_drawn_where_they_apply_and_lie_in_the_tables(browser, tmp_path):
    (tmp_path / "page.html").write_text(page(), encoding="utf-8")
    opened = Opened(browser, tmp_path / "page.html")
    opened.turn("#tokens=30&depth=3&encoding=decay&residual=off")
    rate = 0.05
    bounds = decay_envelope(rate, 0.0, 30).log_bounds(np.arange(30)[::-1], 3)
    for name, expected in zip(("at least", "at most"), bounds, strict=True):
        found = opened.tab.evaluate(COLUMN, ["profile-numbers", name])
        assert found is None or found == pytest.approx(np.exp(np.minimum(expected, 0)), rel=1e-3)
    assert opened.tab.evaluate(COLUMN, ["profile-numbers", "at least"])
    assert "Theorem 4.5" in opened.tab.text_content("#said")
    assert opened.tab.evaluate(COLUMN, ["layers-numbers", "last token, at least"])
    opened.turn("#tokens=30&depth=3&encoding=decay")
    assert opened.tab.evaluate(COLUMN, ["profile-numbers", "at least"]) is None
    assert "Theorem 4.5" not in opened.tab.text_content("#said")
    for link, said in (
        ("#tokens=30&depth=3&mask=sliding_window&width=5", "begins after 29 layers"),
        (
            "#tokens=12&depth=60&mask=sliding_window&width=5",
            "as many moves as there are tokens before the last",
        ),
        ("#tokens=30&depth=3&mask=prefix&length=5", "needs a mask under which no query sees a later key"),
        ("#tokens=30&depth=3", "with ε the least weight of the first token"),
    ):
        opened.turn(link)
        assert said in opened.tab.text_content("#bound")
    assert not opened.wrong
    opened.context.close()
