"""The numbers that errata quote, as they are written (".738", "7e-66", "−.31", "22 %", "½")."""

from typing import NamedTuple

from posbias_papers.errata import Erratum

_FRACTIONS = {"½": 0.5, "¼": 0.25}


class Quote(NamedTuple):
    """A number in an entry's text, and where it comes from: a reading and which of its numbers."""

    text: str
    reading: str
    of: str


def quotes_of(erratum: Erratum) -> list[Quote]:
    """The numbers that an entry quotes."""
    return [Quote(text, *source.split(": ", 1)) for text, source in erratum.quotes.items()]


def value(quote: Quote) -> float:
    """The number that the text spells."""
    if quote.text in _FRACTIONS:
        return _FRACTIONS[quote.text]
    return float(_digits(quote)) / _unit(quote)


def rounding(quote: Quote) -> float:
    """Half a unit of the last digit that is given; of a fraction what floating point may lose."""
    if quote.text in _FRACTIONS:
        return 1e-9
    mantissa, _, exponent = _digits(quote).partition("e")
    return 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])) / _unit(quote)


def _digits(quote: Quote) -> str:
    return quote.text.replace("−", "-").replace(",", "").removesuffix(" %")


def _unit(quote: Quote) -> float:
    return 100.0 if quote.text.endswith(" %") else 1.0
