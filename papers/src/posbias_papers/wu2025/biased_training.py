"""What is said of training that asks for certain items (Figures 3, 6 to 8, 15 to 18): claims on gaps."""

from collections.abc import Iterator, Sequence

from posbias.profiles.claims import Claim
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import NEAR, Above, Evidence, Near, mean
from posbias_papers.claims import AtHand, Maker
from posbias_papers.wu2025 import quantities as q
from posbias_papers.wu2025.outcomes import PAIRS, Gaps
from posbias_papers.wu2025.settings import ABSOLUTE, Setting
from posbias_papers.wu2025.settled import AS_TRAINED

BOTH_ENDS = ("first", "last")
_LEARNT = {
    BOTH_ENDS: (("first-middle", 1), ("middle-last", -1)),
    ("first",): (("first-middle", 1), ("first-last", 1)),
    ("middle",): (("first-middle", -1), ("middle-last", 1)),
    ("last",): (("first-last", -1), ("middle-last", -1)),
}
"""Signs of the gaps of a network that favours the items its training asks for."""
_AWAY = {BOTH_ENDS: "middle-last", ("middle",): "first-middle", ("last",): "first-last"}
"""The gap, below zero, that would show the last item learnt, which the causal mask's own bias is not about."""


def training_claims(claim: Maker, cells: Sequence[Setting]) -> Iterator[Claim]:
    """Claims 1 to 4 of every figure, and what follows for the items that training asks for."""
    answers, masks = cells[0].answers, {"full": "no mask", "causal": "causal"}
    named = {f"{masks[cell.mask.kind]}, {ABSOLUTE[cell.positional]}": cell for cell in cells}
    bare, alone = named["no mask, none"], named["causal, none"]
    encoded = {where: cell for where, cell in named.items() if cell not in (bare, alone)}
    gaps = q.of_gaps(q.null, [("no mask, none", bare, pair) for pair in PAIRS])
    same = AtHand(_by_symmetry, "symmetry: the order of the context is not seen", gaps)
    about = {"provenance": "ours", "effort": AS_TRAINED}
    yield claim(1, "Without mask and encoding there is no position bias", same, **about)
    firsts = ("first-middle", "first-last")
    gaps = q.of_gaps(q.signed, [("causal, none", alone, pair) for pair in firsts])
    yield claim(2, "The causal mask alone gives a bias to the first item", gaps)
    gaps = q.of_gaps(q.rises, [("causal − no mask,", alone, bare, pair) for pair in firsts])
    yield claim(3, "The causal mask alone favours the first item more than no mask does", gaps)
    shown = [(where, cell, *gap) for where, cell in encoded.items() for gap in _LEARNT[answers]]
    sentence = f"sin and RoPE learn the bias to the {' and '.join(answers)}"
    sentence += ", with either mask" if answers == BOTH_ENDS else ""
    yield claim(4, sentence, q.of_gaps(q.signed, shown))
    if answers in _AWAY:
        gaps = q.of_gaps(_not_below, [(f"causal, none {_AWAY[answers]}", alone, _AWAY[answers])])
        yield claim(5, f"The causal mask alone does not learn the bias to the {answers[-1]} item", gaps)
    if answers == BOTH_ENDS:
        gaps = q.of_gaps(q.signed, [(where, cell, "first-last") for where, cell in encoded.items()])
        yield claim(6, "sin and RoPE: the first item is slightly ahead of the last", gaps)
        sentence = "sin and RoPE: the first item is less far ahead of the last than of the middle"
        yield claim(7, sentence, q.of_gaps(_slightly, encoded.items()), provenance="ours")
    else:
        sentence = "No network is lost in the middle: that takes training on both ends"
        yield claim(6 if answers in _AWAY else 5, sentence, q.of_gaps(q.spared, named.items()))


def _by_symmetry() -> list[Evidence]:
    return [Evidence("every gap, as items change places unseen,", Estimate(0.0), test=Near())]


def _not_below(where: str, cell: Gaps, pair: str) -> Evidence:
    """That a gap is above −`NEAR`; the bound is in the number."""
    above = cell.of(pair) + NEAR
    return mean(f"{where} above −{NEAR}, by", above, draws=q.NETWORKS, test=Above(least=0.0))


def _slightly(where: str, cell: Gaps) -> Evidence:
    """That the first item's lead on the last, of either sign, is less than its lead on the middle."""
    less = cell.of("first-middle") - abs(cell.of("first-last"))
    return mean(f"{where} first-middle − first-last", less, draws=q.NETWORKS)
