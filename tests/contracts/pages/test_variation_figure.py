"""The picture of a varied quantity shows the profiles it was given."""

import numpy as np
import pytest

import posbias
from posbias.profiles.profile import Profile
from posbias.reports.plots import (
    draw_comparison,
    draw_profiles,
    draw_variation,
    map_figure,
    new_figure,
    picture_bytes,
    variation_figure,
)
from posbias.reports.plots.variation import BINS


def varied(values, tokens=512):
    rng = np.random.default_rng(0)
    return [(value, Profile.from_weights(rng.uniform(0.5, 2, tokens))) for value in values]


def test_each_row_of_the_map_is_a_profile():
    given = varied([1, 2, 3])
    ax = draw_variation(new_figure().subplots(), given, "depth")
    (mesh,) = ax.collections
    image = np.asarray(mesh.get_array()).reshape(3, BINS)
    for row, (_, profile) in zip(image, given, strict=True):
        np.testing.assert_allclose(row, profile.mass.reshape(BINS, 2).mean(axis=1) * 512)
    assert ax.get_ylim() == (0.5, 3.5)


def test_a_text_shorter_than_the_map_keeps_its_positions():
    profile = Profile(np.array([0.75, 0.25]))
    (mesh,) = draw_variation(new_figure().subplots(), [(1, profile)], "depth").collections
    row = np.asarray(mesh.get_array()).ravel()
    np.testing.assert_allclose(row, np.repeat([1.5, 0.5], BINS // 2))


@pytest.mark.parametrize(("values", "scale"), [([1, 10, 100, 1000], "log"), ([0, 0.1, 0.2, 0.3], "linear")])
def test_values_spaced_by_ratios_get_a_logarithmic_axis(values, scale):
    assert draw_variation(new_figure().subplots(), varied(values), "window").get_yscale() == scale


@pytest.mark.parametrize("count", [1, 2, 6, 20])
def test_small_multiples_show_the_first_and_the_last(count):
    figure = variation_figure("depth", varied(range(1, count + 1)))
    titles = [ax.get_title(loc="left") for ax in figure.axes if ax.get_title(loc="left")]
    assert titles[0] == "depth = 1"
    assert titles[-1] == f"depth = {count}"
    assert len(titles) == min(6, count)
    assert picture_bytes(figure, "png").startswith(b"\x89PNG")


def test_ticks_stand_at_values_that_were_tried():
    tried = [float(value) for value in np.geomspace(1, 3000, 30)]
    ax = draw_variation(new_figure().subplots(), varied(tried), "window")
    assert len(ax.get_yticks()) == 8
    assert {*ax.get_yticks()} <= {*tried}
    assert (ax.get_yticks()[0], ax.get_yticks()[-1]) == (tried[0], tried[-1])


def test_pictures_name_what_they_are_of_and_its_length():
    profiles = [(depth, posbias.predict(posbias.preset("bloom-176b"), 32)) for depth in (1, 2)]
    assert variation_figure("depth", profiles).get_suptitle() == "bloom-176b, 32 positions"
    longer = [*profiles, (3, posbias.predict(posbias.preset("bloom-176b"), 64))]
    assert variation_figure("tokens", longer).get_suptitle() == "bloom-176b"
    shares = profiles[0][1].by_share(8)
    compared = draw_comparison(new_figure().subplots(), posbias.compare(shares, shares))
    assert compared.lines[0].get_label() == "reference: bloom-176b, 32 positions"


@pytest.mark.parametrize("count", [1, 3, 9])
@pytest.mark.parametrize("length", [5, 60, 300])
def test_no_legend_runs_off_or_shrinks_a_chart(count, length):
    named = {
        f"{place} {'architecture ' * length}"[:length]: profile for place, profile in varied(range(count))
    }
    compared = posbias.compare_all(named, next(iter(named.values())))
    for draw, given in ((draw_profiles, named), (draw_comparison, compared)):
        figure = new_figure(6.4, 3.6)
        ax = draw(figure.subplots(), given)
        figure.draw_without_rendering()
        legend, whole = ax.get_legend().get_window_extent(), figure.bbox
        assert legend.x0 >= whole.x0
        assert legend.x1 <= whole.x1
        assert legend.y1 <= whole.y1 + 1
        assert ax.get_window_extent().height > 2.4 * figure.dpi


def test_several_predictions_show_the_band_of_each():
    alibi = posbias.Layer(heads=2, positional=posbias.ALiBi())
    named = {str(depth): posbias.predict(posbias.Architecture(depth, (alibi,)), 64) for depth in (2, 24)}
    bands = draw_profiles(new_figure().subplots(), named).collections
    assert len(bands) == 2
    for band, profile in zip(bands, named.values(), strict=True):
        edge = band.get_paths()[0].vertices[:, 1].max()
        assert edge == pytest.approx(64 * profile.attrs["band"].high.max())


def test_a_map_shows_both_ends_over_two_quantities():
    profiles = [[profile for _, profile in varied([1, 2, 3])] for _ in range(2)]
    figure = map_figure([("depth", [2, 4]), ("window", [10, 100, 1000])], profiles)
    left, right = figure.axes[:2]
    flatness = np.array([[profile.summary.flatness for profile in row] for row in profiles])
    row, column = np.unravel_index(flatness.argmax(), flatness.shape)
    assert f"flatness {flatness.max():.3f}" in figure.get_suptitle()
    for ax, name in ((left, "first_mass"), (right, "last_mass")):
        (mesh,), (circle,) = ax.collections, ax.lines
        np.testing.assert_array_equal(circle.get_xydata(), [[[10, 100, 1000][column], [2, 4][row]]])
        np.testing.assert_array_equal(ax.get_xticks(), [10, 100, 1000])
        np.testing.assert_array_equal(ax.get_yticks(), [2, 4])
        assert [text.get_text() for text in ax.get_xticklabels()] == ["10", "100", "1,000"]
        expected = [[getattr(profile.summary, name) for profile in row] for row in profiles]
        np.testing.assert_allclose(np.asarray(mesh.get_array()).reshape(2, 3), expected)
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("window", "depth")
        assert (ax.get_xscale(), ax.get_yscale()) == ("log", "linear")
    assert picture_bytes(figure, "png").startswith(b"\x89PNG")
