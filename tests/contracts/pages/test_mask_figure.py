"""The picture of masks shows their pairs, edges and centre nodes."""

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Circle, FancyArrowPatch

from posbias.errors import InvalidValueError
from posbias.plots import new_figure, picture_bytes
from posbias.plots.masks import MOST_NODES, draw_graph, draw_mask, mask_figure
from posbias.plots.style import ACCENT, FILE_KINDS, PAPER
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.graph import centre_nodes
from posbias.theory.masks import Causal, Full, Prefix, SlidingWindow

SHOWN = [Causal(), SlidingWindow(3), SlidingWindow(2, 1), SlidingWindow(1), Prefix(3), Full()]


def axes():
    return new_figure(3, 3).subplots()


@pytest.mark.parametrize("mask", SHOWN)
def test_each_admitted_pair_is_a_coloured_cell(mask):
    tokens = 7
    ax = draw_mask(axes(), mask, tokens)
    image = np.asarray(ax.images[0].get_array())
    np.testing.assert_array_equal((image != to_rgb(PAPER)).any(axis=-1), mask.allowed(tokens))
    # the accent is blue and the rest grey: the centre's columns, and no others
    hue = image.max(axis=-1) - image.min(axis=-1)
    accented = np.zeros((tokens, tokens), dtype=bool)
    accented[:, centre_nodes(mask, tokens)] = mask.allowed(tokens)[:, centre_nodes(mask, tokens)]
    np.testing.assert_array_equal(hue > 0.3, accented)


def test_a_pattern_is_darker_where_more_layers_admit():
    image = np.asarray(draw_mask(axes(), [SlidingWindow(1), Causal()], 3).images[0].get_array())
    assert image[2, 2].sum() < image[2, 1].sum() < 3.0
    assert image[1, 2].sum() == 3.0


@pytest.mark.parametrize("mask", SHOWN)
def test_the_graph_has_an_arc_for_each_edge_and_accents_its_centre(mask):
    tokens = 6
    ax = draw_graph(axes(), mask, tokens)
    arcs = [one for one in ax.patches if isinstance(one, FancyArrowPatch)]
    nodes = [one for one in ax.patches if isinstance(one, Circle)]
    assert len(nodes) == tokens
    assert len(arcs) == mask.allowed(tokens).sum() - tokens
    centres = [k for k, node in enumerate(nodes) if to_hex(node.get_facecolor()) == ACCENT]
    assert centres == centre_nodes(mask, tokens).tolist()
    # every arc lies inside the picture
    ax.figure.draw_without_rendering()
    low, high = ax.get_ylim()
    for one in (*arcs, *nodes):
        box = one.get_window_extent().transformed(ax.transData.inverted())
        assert low <= box.y0
        assert box.y1 <= high


def test_titles_say_what_is_shown_and_centres_are_named():
    figure = mask_figure([Causal(), SlidingWindow(3, 1), SlidingWindow(3, 2), Prefix(3)], 6)
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == [
        "causal", "sliding window, w = 3, 1 sink", "sliding window, w = 3, 2 sinks", "prefix, K = 3",
        "centre node 0", "centre node 0", "centre node 0", "centre nodes 0 to 2",
    ]  # fmt: skip
    named = Architecture(2, (Layer(mask=SlidingWindow(1)), Layer(mask=SlidingWindow(1))), name="alone")
    figure = mask_figure([named, Full(), [Causal(), Full()]], 4)
    assert [ax.get_title() for ax in figure.axes][:4] == [
        "alone", "full", "pattern of layers", "no centre node"
    ]  # fmt: skip
    assert mask_figure({"mine": Causal()}, 4).axes[0].get_title() == "mine"


def test_graphs_side_by_side_stand_at_one_height():
    figure = mask_figure([Causal(), SlidingWindow(2), Full()], 6)
    assert len({ax.get_ylim() for ax in figure.axes[3:]}) == 1


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind != "svg")) for kind in FILE_KINDS]
)
def test_same_masks_same_bytes(kind):
    first, second = (picture_bytes(mask_figure([Prefix(2), SlidingWindow(2)], 5), kind) for _ in range(2))
    assert first == second


def test_one_token_and_many_can_be_drawn():
    for tokens in (1, 2, MOST_NODES):
        figure = mask_figure([SlidingWindow(2)], tokens)
        assert picture_bytes(figure, "png").startswith(b"\x89PNG")
    assert np.asarray(draw_mask(axes(), Causal(), 200).images[0].get_array()).shape == (200, 200, 3)


@pytest.mark.parametrize(
    ("masks", "tokens", "words"),
    [
        ([], 4, r"masks: none given, one or more needed"),
        ([Causal()], MOST_NODES + 1, r"tokens: 33 given, at most 32"),
        ([Causal()], 0, r"tokens: 0 given"),
        ([Prefix(5)], 4, r"length: a prefix of 5 tokens given"),
        (["causal"], 4, r"pattern: 'causal' given"),
    ],
)
def test_what_cannot_be_drawn_is_named(masks, tokens, words):
    with pytest.raises(InvalidValueError, match=words):
        mask_figure(masks, tokens)
