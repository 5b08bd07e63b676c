"""The picture of the variants shows the numbers it was given."""

import numpy as np
import pytest

from posbias.reports.plots import new_figure, picture_bytes
from posbias.simulation import RecencyModel
from posbias_papers.plots.variants import GROUPS, draw_variants
from posbias_papers.simulation.variants import VARIANTS, OverNetworks, Variant, VariantResult


def over_networks(seed: int, depth: int = 4, noise: float = 0.0) -> OverNetworks:
    share = np.random.default_rng(seed).uniform(0.3, 0.7, size=(5, depth))
    return OverNetworks(share, np.full((5, depth), noise), np.stack([share, share]))


def result(variant: Variant, seed: int = 0, noise: float = 0.0) -> VariantResult:
    depth = variant.model.depth
    score, content = over_networks(seed, depth, noise), over_networks(seed + 1, depth, noise)
    return VariantResult(variant, 0, 10, score, content)


def draw(results):
    return draw_variants(new_figure().subplots(), results)


def points(ax):
    """(x, y) of every point drawn, from the top."""
    drawn = [
        line.get_xydata()[0] for line in ax.get_lines() if line.get_marker() == "o" and len(line.get_xdata())
    ]
    return np.array(sorted(drawn, key=lambda point: point[1]))


def test_points_intervals_and_bars_are_the_numbers():
    given = result(VARIANTS["plain"])
    ax = draw({"plain": given})
    means = [p.value - 0.5 for p in given.score.recency_probability[1:]]
    np.testing.assert_allclose(points(ax)[:, 0], means)
    lines = [ends for c in ax.containers if hasattr(c, "has_xerr") for ends in c.lines[2][0].get_segments()]
    for ends, p in zip(lines, given.score.recency_probability[1:], strict=True):
        np.testing.assert_allclose(ends[:, 0], np.array(p.interval) - 0.5)
    for bar, mean, v in zip(ax.patches, means, given.score.variance[1:], strict=True):
        ends = (bar.get_x(), bar.get_x() + bar.get_width())
        np.testing.assert_allclose(ends, [mean - v.value**0.5, mean + v.value**0.5])


def test_no_bar_where_the_inputs_noise_is_all_there_is():
    assert len(draw({"plain": result(VARIANTS["plain"])}).patches) == 3
    assert not draw({"plain": result(VARIANTS["plain"], noise=1.0)}).patches


def test_rows_are_grouped_and_an_encoding_shows_its_content():
    given = {
        name: result(VARIANTS[name], seed) for seed, name in enumerate(("alibi", "block", "plain", "tied"))
    }
    ax = draw(given)
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == [
        GROUPS[0], "plain", GROUPS[1], "tied", GROUPS[2], "block", GROUPS[3], "alibi", "alibi, content"
    ]  # fmt: skip
    low, high = sorted(ax.get_ylim())
    assert low < min(ax.get_yticks()) < max(ax.get_yticks()) < high
    shown = points(ax)[:, 0].reshape(5, 3)
    content = [p.value - 0.5 for p in given["alibi"].content.recency_probability[1:]]
    np.testing.assert_allclose(shown[-1], content)


@pytest.mark.parametrize("depth", [1, 2, 6])
def test_any_depth_can_be_drawn(depth):
    ax = draw({"some": result(Variant(RecencyModel(depth=depth)))})
    assert len(points(ax)) == min(depth - 1, 3)


def test_same_data_same_bytes():
    pictures = []
    for _ in range(2):
        figure = new_figure(6.8, 7.2)
        ax = figure.subplots()
        back = draw_variants(ax, {name: result(variant) for name, variant in VARIANTS.items()})
        assert back is ax
        pictures.append(picture_bytes(figure, "png"))
    assert pictures[0] == pictures[1]
    assert pictures[0].startswith(b"\x89PNG")
