"""A saved figure as an element of a page: small, without its words, without anything but what draws."""

import re

import pytest

from posbias.plots.captions import captioned_figure, settle
from posbias.plots.style import picture_bytes
from posbias.reports import gallery


def test_an_svg_brings_only_what_draws(tmp_path):
    vector = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9">'
        "<script>alert(1)</script><style>p {color: red}</style><foreignObject><p/></foreignObject>"
        '<g onload="alert(1)" style="fill: url(http://x/y)"><image xlink:href="http://x/y.png"/>'
        '<path d="M 0.123456 1 L 2 3"/></g></svg>'
    )
    (tmp_path / "fig2.svg").write_text(vector)
    found = gallery.picture(tmp_path, "fig2", "wu2025-fig2", 'what it "shows" <b>')
    assert found.vector
    assert 'd="M 0.12 1 L 2 3"' in found.element
    assert 'aria-label="what it &quot;shows&quot; &lt;b&gt;"' in found.element
    for word in ("http://x", "color: red", "alert", "foreignObject", "onload"):
        assert word not in found.element


def test_a_figure_without_words_keeps_its_size(tmp_path):
    from posbias.plots.style import new_figure, save_figure

    figure = new_figure(3, 2)
    figure.subplots().plot([0, 1])
    save_figure(figure, tmp_path / "fig2.svg")
    found = gallery.picture(tmp_path, "fig2", "a", "b")
    assert 'viewBox="0 0 216 144"' in found.element
    assert "--natural:288" in found.element
    assert gallery.picture(tmp_path, "fig3", "a", "b") == gallery.Picture()


def test_entities_are_not_read():
    with pytest.raises(ValueError, match="entities"):
        gallery.inline_svg(b'<!DOCTYPE svg [<!ENTITY a "b">]><svg/>', "a", "b")


def test_words_beneath_a_figure_are_cut_off():
    figure, panels = captioned_figure(4, 2, [("fails: a long sentence beneath", "#d55e00")] * 3)
    panels.subplots().plot([0, 1])
    whole = picture_bytes(settle(figure), "svg")
    short = gallery.inline_svg(whole, "a", "b").encode()
    height = float(re.search(rb'viewBox="0 0 288 ([\d.]+)"', short)[1])
    assert height == pytest.approx(144, abs=1.5)
    assert b"#d55e00" in whole
    assert b"#d55e00" not in short
    assert len(short) < 0.7 * len(whole)
