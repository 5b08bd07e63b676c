"""Numbers and formulas as text of a page."""

import math

import pytest

from posbias.reports.setting import maths, plus_minus, quantity


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("W_V and content_config", "W<sub>V</sub> and content_config"),
        ("e^(I_max−I_min)/N", "e<sup>I<sub>max</sub>−I<sub>min</sub></sup>/N"),
        ("P_(21)1 and R_(i−j)", "P<sub>(21)1</sub> and R<sub>(i−j)</sub>"),
        ("√(β_qβ_k)", "√(β<sub>q</sub>β<sub>k</sub>)"),
        ("(1 − ε)^⌊(t+1)/h⌋", "(1 − ε)<sup>⌊(t+1)/h⌋</sup>"),
        ("`a_b` < 3 %", "<code>a_b</code> &lt; 3\N{NO-BREAK SPACE}%"),
        ("one ` alone, margin -1.9e-05", "one ` alone, margin −1.9e-05"),
    ],
)
def test_maths(text, html):
    assert maths(text) == html


@pytest.mark.parametrize(
    ("value", "se", "text"),
    [
        (0.638, 0.002, "0.6380 ± 0.0020"),
        (-0.00001, 0.001, "0.0000 ± 0.0010"),
        (math.nan, 0.1, "–"),
        (None, None, "–"),
        (48000.0, 0.0, "48,000"),
        (1868.4, math.nan, "1,868"),
        (-1.9e11, None, "−1.9e11"),
        (5e-7, 2e-8, "5e−7 ± 2e−8"),
        (math.inf, None, "∞"),
    ],
)
def test_numbers(value, se, text):
    assert plus_minus(value, se).replace("\N{NO-BREAK SPACE}", " ") == text
    assert quantity((value, se)) == plus_minus(value, se)
