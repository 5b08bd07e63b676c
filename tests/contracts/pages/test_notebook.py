"""What a notebook shows: words, escaped, over the picture that `plot` draws."""

import base64
import importlib.util
import pickle
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import xarray as xr

from posbias import (
    ALiBi,
    Architecture,
    AttentionOnly,
    Layer,
    compare,
    load_measurement,
    measured_influence,
    predict,
    save_measurement,
)
from posbias.profiles.profile import Profile, harmonic
from posbias.reports import plots

HOSTILE = "<script>alert(1)</script> & \"quoted\" '<img src=x onerror=alert(2)>' $\\frac{$ -->\n<b>"
TOKENS = 32


class Reader(HTMLParser):
    """Tags with their attributes, and the text between them."""

    def __init__(self, markup):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(markup)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def architecture(name="two kinds"):
    near = Architecture.pattern(6, local=2, window=8, layer=Layer(heads=4, positional=ALiBi()))
    return replace(near, name=name)


def shown_values(name):
    """A value of each kind that shows itself, of something of this name."""
    profile = predict(architecture(name), tokens=TOKENS)
    rate = Profile(np.linspace(0, 1, TOKENS), kind="rate", attrs={"model": name})
    samples = np.random.default_rng(0).uniform(0.5, 1.5, (4, TOKENS))
    measured = Profile.from_samples(samples, attrs={"model": name})
    return [architecture(name), profile, rate, measured, compare(harmonic(TOKENS), measured)]


@pytest.mark.parametrize("place", range(5))
def test_picture_is_that_of_plot(place):
    shown = shown_values("alibi")[place]
    tag, about = Reader(shown._repr_html_()).tags[-1]
    assert tag == "img"
    kind, _, data = about["src"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    figure = plots.new_figure()
    shown.plot(figure.subplots())
    assert base64.b64decode(data) == plots.picture_bytes(figure, "svg")


@pytest.mark.parametrize("place", range(5))
def test_words_are_escaped(place):
    markup = shown_values(HOSTILE)[place]._repr_html_()
    reader = Reader(markup)
    assert [tag for tag, _ in reader.tags] == ["div", "p", "img"]
    assert set(reader.tags[-1][1]) == {"style", "alt", "src"}
    assert not re.search(r"<(script|b)\b", markup)


def test_line_of_words_says_name_and_verdict():
    profile = predict(replace(architecture("alibi"), mixing=AttentionOnly()), tokens=TOKENS)
    words = Reader(profile._repr_html_()).text
    assert words.startswith("Profile: rollout of alibi, 32 positions; verdict: ")
    assert profile.summary.verdict in words
    assert f"flatness {profile.summary.flatness:.2f}" in words
    assert Reader(architecture("alibi")._repr_html_()).text == "Architecture alibi: 6 layers of 4 heads"


@pytest.mark.parametrize("place", range(5))
def test_without_matplotlib_the_words_alone_are_shown(place, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name)
    )
    reader = Reader(shown_values(HOSTILE)[place]._repr_html_())
    assert [tag for tag, _ in reader.tags] == ["pre"]


def test_layers_are_told_apart_by_mask_and_encoding():
    ax = architecture().plot()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["SlidingWindow of 8, ALiBi, 4 heads", "Causal, ALiBi, 4 heads"]
    drawn = {line.get_label(): line for line in ax.get_lines()}
    np.testing.assert_array_equal(drawn[labels[1]].get_xdata(), [2, 5])
    np.testing.assert_array_equal(drawn[labels[1]].get_ydata(), architecture().coefficients[[2, 5]])


def test_a_measurement_shows_its_curve_and_a_line_of_words_over_its_table(make_measurement, tmp_path):
    made = make_measurement("U", model=HOSTILE)
    save_measurement(made, tmp_path / "measured.nc")
    measured = load_measurement(tmp_path / "measured.nc")
    assert measured.attrs == made.attrs
    xr.testing.assert_identical(measured["influence"], made["influence"])
    shown = measured._repr_html_()
    assert "xr-header" in shown
    reader = Reader(shown)
    curve = measured_influence(measured)
    assert curve.samples is not None
    assert shown.startswith(curve._repr_html_())
    assert [tag for tag, _ in reader.tags][:3] == ["div", "p", "img"]
    assert "script" not in [tag for tag, _ in reader.tags]
    # what is taken of it is such a measurement too, and shows what it has
    some = measured.sel(prompt=[0, 1])
    assert some._repr_html_().startswith(measured_influence(some)._repr_html_())
    assert "<img" not in measured[["mixing"]]._repr_html_()
    assert "<img" not in measured.isel(prompt=[])._repr_html_()
    assert pickle.loads(pickle.dumps(measured))._repr_html_().startswith("<div><p>Profile: gradient")
