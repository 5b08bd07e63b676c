"""What the paper says of biased training (Figures 3, 6 to 8, 15 to 18; Section 5.2, Appendix K.3), as claims."""

from collections.abc import Mapping

import numpy as np

from posbias.claims import NEAR, Above, Judged, judged_sentence, mean
from posbias.papers.wu2025.figures import ABSOLUTE, DataFigure, Setting
from posbias.papers.wu2025.gaps import NETWORKS, Gaps, null, rises, signed, spared
from posbias.theory.masks import Causal, Full

_MASKS = {"no mask": Full(), "causal": Causal()}
_LEARNT = {
    ("first", "last"): (("first-middle", 1), ("middle-last", -1)),
    ("first",): (("first-middle", 1), ("first-last", 1)),
    ("middle",): (("first-middle", -1), ("middle-last", 1)),
    ("last",): (("first-last", -1), ("middle-last", -1)),
}
"""Signs of the gaps of a network that favours the items its training asks for."""
_AWAY = {
    ("first", "last"): ("last", "middle-last"),
    ("middle",): ("middle", "first-middle"),
    ("last",): ("last", "first-last"),
}
"""The item that the causal mask's own bias is not about, and the gap, below zero, that would show it learnt."""


def data_claims(figure: DataFigure, gaps: Mapping[Setting, Gaps]) -> list[Judged]:
    """The claims of Figures 3, 6, 7, 8 and 15 to 18."""
    cells = {
        f"{mask}, {name}": gaps[figure.setting(value, word)]
        for mask, value in _MASKS.items()
        for name, word in ABSOLUTE.items()
    }
    bare, alone = cells["no mask, none"], cells["causal, none"]
    encoded = {name: one for name, one in cells.items() if one is not bare and one is not alone}
    items, firsts = " and ".join(figure.answers), ("first-middle", "first-last")
    claims = [
        judged_sentence("Without mask and encoding there is no position bias", null("no mask, none", bare)),
        judged_sentence(
            "The causal mask alone gives a bias to the first item",
            tuple(signed("causal, none", alone, pair) for pair in firsts),
        ),
        judged_sentence(
            "The causal mask alone favours the first item more than no mask does",
            tuple(rises("causal − no mask,", alone, bare, pair) for pair in firsts),
        ),
        judged_sentence(
            f"sin and RoPE learn the bias to the {items}, with either mask",
            tuple(
                signed(name, one, pair, sign)
                for name, one in encoded.items()
                for pair, sign in _LEARNT[figure.answers]
            ),
        ),
    ]
    if figure.answers in _AWAY:
        item, pair = _AWAY[figure.answers]
        where = f"causal, none {pair} above −{NEAR}, by"
        # the bound is in the sentence
        above = mean(where, alone.of(pair) + NEAR, draws=NETWORKS, test=Above(least=0.0))
        claims.append(
            judged_sentence(f"The causal mask alone does not learn the bias to the {item} item", (above,))
        )
    return claims + (_both_ends(encoded) if figure.answers == ("first", "last") else [_no_middle(cells)])


def _both_ends(encoded: Mapping[str, Gaps]) -> list[Judged]:
    """Trained on both ends, networks with an encoding are lost in the middle, a little less at the first item."""
    return [
        judged_sentence(
            "sin and RoPE: the first item is slightly ahead of the last",
            tuple(signed(name, one, "first-last") for name, one in encoded.items()),
        ),
        judged_sentence(
            "sin and RoPE: the first item is less far ahead of the last than of the middle",
            tuple(
                mean(f"{name} first-middle − first-last", _less(one), draws=NETWORKS)
                for name, one in encoded.items()
            ),
        ),
    ]


def _less(cell: Gaps) -> np.ndarray:
    return cell.of("first-middle") - np.abs(cell.of("first-last"))


def _no_middle(cells: Mapping[str, Gaps]) -> Judged:
    return judged_sentence(
        "No network is lost in the middle: that takes training on both ends",
        tuple(spared(name, one) for name, one in cells.items()),
    )
