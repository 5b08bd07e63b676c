"""Often, typically, most: the share of cells in which an effect is there, with the error the cells leave to it."""

import numpy as np
import pytest

from posbias.profiles.claims import Above, Evidence
from posbias.profiles.estimate import Estimate
from posbias_papers.contrasts import share


@pytest.mark.parametrize(
    ("effects", "value", "verdict"),
    [
        ([0.3] * 9 + [-0.3] * 6, 9 / 15, "holds"),
        ([0.3] * 6 + [-0.3] * 9, 6 / 15, "fails"),
        ([0.3], 1.0, "holds"),
        ([0.3, 0.0, -0.3], 0.5, "undecided"),
    ],
)
def test_often_is_a_share_above_one_half(effects, value, verdict):
    cells = [Evidence("cell", Estimate(effect, 0.05), test=Above()) for effect in effects]
    often = share("cells", cells)
    assert often.estimate.value == pytest.approx(value, abs=1e-6)
    assert often.verdict() == verdict


def test_the_error_of_a_share_is_that_of_the_cells():
    """A cell counts where its noisy effect is above zero; how often that is varies as the error says."""
    random, truth, se = np.random.default_rng(0), np.array([0.0, 0.05, 0.1, -0.02]), 0.05
    one = share("cells", [Evidence("c", Estimate(effect, se), test=Above()) for effect in truth])
    drawn = (random.normal(truth, se, (20_000, 4)) > 0).mean(axis=1)
    assert one.estimate.value == pytest.approx(drawn.mean(), abs=0.01)
    assert one.estimate.se == pytest.approx(drawn.std(), rel=0.05)


def test_a_cell_of_which_nothing_is_known_counts_one_half():
    known, unknown = Evidence("a", Estimate(0.3, 0.01), test=Above()), Evidence("b", flaw="not measured")
    assert share("cells", [known, unknown]).estimate.value == 0.75
    assert share("cells", [known, unknown]).estimate.se == 0.25
    assert share("cells", [unknown, unknown]).flaw == "not measured"
