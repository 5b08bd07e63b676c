"""A saved figure on a page, as a file or an element of it: without its words, without anything but what draws."""

import re

import pytest

from posbias.reports import gallery
from posbias.reports.plots.style import new_figure, picture_bytes, save_figure
from posbias_papers.plots.captions import captioned_figure, settle


def test_an_svg_brings_only_what_draws():
    vector = (
        b'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9">'
        b"<script>alert(1)</script><style>p {color: red}</style><foreignObject><p/></foreignObject>"
        b'<g onload="alert(1)" style="fill: url(http://x/y)"><image xlink:href="http://x/y.png"/>'
        b'<path d="M 0.123456 1 L 2 3"/></g></svg>'
    )
    found = gallery.inline_svg(vector, "wu2025-fig2", 'what it "shows" <b>')
    assert 'd="M 0.12 1 L 2 3"' in found
    assert 'aria-label="what it &quot;shows&quot; &lt;b&gt;"' in found
    for word in ("http://x", "color: red", "alert", "foreignObject", "onload"):
        assert word not in found


def test_a_figure_has_the_size_it_is_drawn_at(tmp_path):
    figure = new_figure(3, 2)
    figure.subplots().plot([0, 1])
    vector = save_figure(figure, tmp_path / "fig2.svg")
    pixels = save_figure(figure, tmp_path / "fig2.png")
    assert gallery.picture(tmp_path, "fig2") == gallery.Picture(str(vector), 288, 192)
    vector.unlink()
    assert gallery.picture(tmp_path, "fig2") == gallery.Picture(str(pixels), 288, 192)
    assert gallery.picture(tmp_path, "fig3") == gallery.Picture()
    whole = gallery.inline_svg(picture_bytes(figure, "svg"), "a", "b")
    assert 'viewBox="0 0 216 144"' in whole
    assert "--natural:288" in whole


def test_entities_are_not_read():
    with pytest.raises(ValueError, match="entities"):
        gallery.inline_svg(b'<!DOCTYPE svg [<!ENTITY a "b">]><svg/>', "a", "b")


def test_words_beneath_a_figure_are_cut_off(tmp_path):
    figure, panels = captioned_figure(4, 2, [("fails: a long sentence beneath", "#d55e00")] * 3)
    panels.subplots().plot([0, 1])
    whole = picture_bytes(settle(figure), "svg")
    short = gallery.inline_svg(whole, "a", "b").encode()
    height = float(re.search(rb'viewBox="0 0 288 ([\d.]+)"', short)[1])
    assert height == pytest.approx(144, abs=1.5)
    save_figure(figure, tmp_path / "fig2.svg")
    assert gallery.picture(tmp_path, "fig2").height == pytest.approx(height * 4 / 3, abs=0.1)
    assert b"#d55e00" in whole
    assert b"#d55e00" not in short
    assert len(short) < 0.7 * len(whole)
