"""How the page of the papers sets mathematics and numbers as text."""

import math
import re
from typing import Any

from markupsafe import Markup, escape

from posbias.reports.page import tied

SPACE = "\N{NO-BREAK SPACE}"
_RAISED = re.compile(
    r"\^(?:\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)|([⌊⌈][^⌋⌉]*[⌋⌉]|[−+-]?√?[A-Za-zα-ωΑ-Ω0-9½¼]+))"
)
_LOWERED = re.compile(
    r"((?:(?<![A-Za-z_])(?:mean|max|min|[A-Za-z])|[α-ωΑ-Ω])[\u0300-\u036f′]*|[)\]‖⁾])_(\([^()]*\)[A-Za-z0-9]*|[A-Za-z0-9₀-₉]+(?:,[a-z0-9]+)*)"
)


def maths(text: str) -> Markup:
    """λ_t, e^(−2M) and `code` as they are set, of single letters and of brackets only: names stay names."""
    pieces = str(escape(tied(text))).split("`")
    if len(pieces) % 2 == 0:
        pieces = ["`".join(pieces)]
    pieces[::2] = map(set_maths, pieces[::2])
    pieces[1::2] = [f"<code>{one}</code>" for one in pieces[1::2]]
    return Markup("".join(pieces))


def set_maths(text: str) -> str:
    """The same of HTML text without code."""
    text = _RAISED.sub(lambda found: f"<sup>{found[1] or found[2]}</sup>", text)
    text = re.sub(r"(?<![\w.])-(?=\d)", "−", text)
    return _LOWERED.sub(r"\1<sub>\2</sub>", text)


def plus_minus(value: float | None, se: float | None = None) -> str:
    """A value with its error, as many digits as that allows; a dash where there is no number."""
    if value is None or math.isnan(value):
        return "–"
    if se is None or not (math.isfinite(se) and math.isfinite(value)) or se <= 1e-9 * abs(value):
        return plain(value)
    digits = max(0, 1 - math.floor(math.log10(se)))
    if digits > 7:
        return f"{plain(value)}{SPACE}±{SPACE}{_powers(f'{se:.1g}')}"
    return _signed(f"{value:,.{digits}f}{SPACE}±{SPACE}{se:,.{digits}f}")


def plain(value: float) -> str:
    """A number without error: whole ones in full, others with four digits."""
    if math.isfinite(value) and value == round(value) and abs(value) < 1e9:
        return _signed(f"{value:,.0f}")
    if 1e3 <= abs(value) < 1e9:
        return _signed(f"{value:,.0f}")
    return "∞" if value == math.inf else "−∞" if value == -math.inf else _powers(f"{value:.4g}")


def quantity(value: Any) -> str:
    """Whatever a comparison holds, as text: a number, a (value, error) pair, an estimate, or words."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case (first, second):
            return plus_minus(first, second)
        case int() | float():
            return plus_minus(value)
        case _ if hasattr(value, "se"):
            return plus_minus(value.value, value.se)
    return tied(str(value))


def _powers(text: str) -> str:
    """1.2e-09 as 1.2e−9."""
    return _signed(re.sub(r"e([+-])0*(\d+)", lambda found: f"e{found[1].strip('+')}{found[2]}", text))


def _signed(text: str) -> str:
    """A real minus sign, and none before a zero."""
    return re.sub(r"^-(?=[0.]+(?:\s|$))", "", text).replace("-", "−")
