"""The picture of masks shows their pairs, edges and centre nodes."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Circle, FancyArrowPatch

from posbias.core.errors import InvalidValueError
from posbias.reports.plots import new_figure, picture_bytes
from posbias.reports.plots.masks import MOST_NODES, _on_walks, draw_graph, draw_mask, draw_walks, mask_figure
from posbias.reports.plots.style import ACCENT, FILE_KINDS, PAPER
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


def every_walk(stack, sources):
    """All walks of one edge a layer from a source to the last token, found by trying."""
    tokens = len(stack[0])
    for walk in product(range(tokens), repeat=len(stack) + 1):
        steps = zip(stack, pairwise(walk), strict=True)
        if walk[0] in sources and walk[-1] == tokens - 1 and all(a[query, key] for a, (key, query) in steps):
            yield walk


@given(
    arrays(bool, st.tuples(st.integers(1, 3), st.just(4), st.just(4))), st.sets(st.integers(0, 3), max_size=2)
)
def test_an_edge_is_on_a_walk_if_trying_all_walks_takes_it(stack, sources):
    taken = np.zeros(stack.shape, dtype=bool)
    for walk in every_walk(stack, sources):
        for layer, (key, query) in enumerate(pairwise(walk)):
            taken[layer, query, key] = True
    np.testing.assert_array_equal(_on_walks(list(stack), [*sources]), taken)


@pytest.mark.parametrize("mask", [*SHOWN, [SlidingWindow(1), Causal()]])
def test_walks_have_a_line_for_each_edge_and_are_counted(mask):
    tokens, layers = 4, 3
    masks = (mask * layers)[:layers] if isinstance(mask, list) else [mask] * layers
    stack = [one.allowed(tokens) for one in masks]
    centres = centre_nodes(mask, tokens).tolist()
    ax = draw_walks(axes(), mask, tokens, layers)
    assert len(ax.lines) == sum(one.sum() for one in stack)
    found = list(every_walk(stack, centres))
    accented = [line for line in ax.lines if to_hex(line.get_color()) == ACCENT]
    edges = {(layer, *edge) for walk in found for layer, edge in enumerate(pairwise(walk))}
    assert len(accented) == len(edges)
    told = [f"{sum(walk[0] == one for walk in found)} from {one}" for one in centres]
    assert ax.get_title() == f"walks to 3: {', '.join(told) or 'no centre node'}"


def test_walks_stand_above_where_layers_are_given():
    figure = mask_figure([Causal(), Prefix(2)], 5, 2)
    assert [ax.get_title() for ax in figure.axes] == [
        "causal\nwalks to 4: 5 from 0", "prefix, K = 2\nwalks to 4: 5 from 0, 5 from 1", "", "",
        "centre node 0", "centre nodes 0 to 1",
    ]  # fmt: skip
    with pytest.raises(InvalidValueError, match="layers: -1 given"):
        mask_figure([Causal()], 4, -1)
    with pytest.raises(InvalidValueError, match="layers: 0 given"):
        draw_walks(axes(), Causal(), 4, 0)


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
    ],
)
def test_what_cannot_be_drawn_is_named(masks, tokens, words):
    with pytest.raises(InvalidValueError, match=words):
        mask_figure(masks, tokens)
