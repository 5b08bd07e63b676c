"""What is said of depth (Figures 2, 4, 5, 13 and 14): claims on the gaps of causal networks by encoding.

Where the text says "bias toward earlier parts", the gap first–last is taken: the widest pair. Statements about
size are tested on gaps at the end of training; `equally_accurate` repeats the one on depth at equal in-context
accuracy.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any

from posbias.profiles.claims import Claim
from posbias_papers.claims import Maker
from posbias_papers.wu2025 import quantities as q
from posbias_papers.wu2025.settings import RELATIVE, Setting
from posbias_papers.wu2025.settled import AS_TRAINED

DEEP_FROM = 6
"""From this depth on residual networks with RoPE are deep: the paper's exception, without its depth."""


def both_kinds(claim: Maker, cells: Sequence[Setting]) -> Iterator[Claim]:
    """Claims of Figure 2: networks without and with residual connections."""
    alone, residual = ([cell for cell in cells if cell.residual is kind] for kind in (False, True))
    yield from without_residual(claim, alone)
    yield from with_residual(claim, residual, after=10)
    yield nowhere_lost(claim, 15, cells)
    yield equally_accurate(claim, 16, alone)
    yield equally_accurate(claim, 17, residual)
    yield emerges(claim, 18, residual)


def pure_attention(claim: Maker, cells: Sequence[Setting]) -> Iterator[Claim]:
    """Claims of Figure 4 or 13: networks without residual connections."""
    yield from without_residual(claim, cells)
    yield nowhere_lost(claim, 11, cells)
    yield equally_accurate(claim, 12, cells)
    if cells[0].inputs == "fixed_vocabulary":
        yield harder(claim, 13, cells)


def with_residuals(claim: Maker, cells: Sequence[Setting]) -> Iterator[Claim]:
    """Claims of Figure 5 or 14: networks with residual connections, said to be like others in Figure 14."""
    if cells[0].inputs == "gaussian_mixture":
        yield from with_residual(claim, cells)
        yield nowhere_lost(claim, 5, cells)
        yield equally_accurate(claim, 6, cells)
        yield emerges(claim, 7, cells)
        return
    yield still_biased(claim, 1, cells)
    yield deeper(claim, 2, cells, provenance="paper")
    yield each_step(claim, 3, cells, provenance="paper")
    yield nowhere_lost(claim, 4, cells)
    yield equally_accurate(claim, 5, cells)
    yield harder(claim, 6, cells)


def along_training(claim: Maker, cells: Sequence[Setting]) -> Iterator[Claim]:
    """Claims of our own on Figure 2: does depth add to the bias otherwise measured too, and is it settled?"""
    for number, kind in ((1, False), (4, True)):
        named = [cell for cell in cells if cell.residual is kind]
        ends = [(title, cells[-1], cells[0]) for title, cells in _by_depth(named).items()]
        _, deep, shallow = ends[0]
        more = f"depth {deep.depth} favours earlier items more than depth {shallow.depth}"
        sentence = f"{_kind(named)}: relative to in-context accuracy {more}"
        yield claim(number, sentence, q.of_gaps(q.relative, ends))
        sentence = f"{_kind(named)}: at equal loss of training {more}"
        yield claim(number + 1, sentence, q.of_training(q.equally_low, ends))
        places = [
            (f"{RELATIVE[cell.positional]}, depth {cell.depth}", cell, curve)
            for cell in named
            for curve in ("first-last", "in_context_accuracy")
        ]
        sentence = (
            "gap and in-context accuracy are settled: they change little over the last third of training"
        )
        yield claim(
            number + 2, f"{_kind(named)}: {sentence}", q.of_training(q.settled, places), effort=AS_TRAINED
        )


# --- networks without residual connections -----------------------------------------------------------------


def without_residual(claim: Maker, cells: Sequence[Setting]) -> Iterator[Claim]:
    """Claims 1 to 10 of Figures 2, 4 and 13."""
    plain, decay, rope = series_of(cells).values()
    beside = [
        (f"{word}, {depth}", cell, other[depth])
        for depth, cell in plain.items()
        for word, other in (("decay", decay), ("RoPE", rope))
    ]
    gaps = q.of_gaps(q.signed, [(depth, cell, "first-last") for depth, cell in plain.items()])
    yield claim(1, "No residual: the causal mask alone favours earlier items, at every depth", gaps)
    yield deeper(claim, 2, cells)
    yield each_step(claim, 3, cells)
    gaps = q.of_gaps(q.smaller, [(f"no encoding, {depth}", cell) for depth, cell in plain.items()])
    yield claim(4, "No residual: middle against last differs less than first against last", gaps)
    named = [(f"no encoding, {depth}", cell, "first-middle") for depth, cell in plain.items()]
    sentence = "No residual: middle against last differs less than first against middle"
    yield claim(5, sentence, q.of_gaps(q.smaller, named))
    both = ("first-last", "first-middle")
    gaps = q.of_gaps(q.smaller, [(f"{at}, {pair},", other, pair) for at, _, other in beside for pair in both])
    sentence = "with decay mask and RoPE too, middle against last differs less than first against either"
    yield claim(6, f"No residual: {sentence}", gaps)
    gaps = q.of_gaps(q.rises, [(f"none − {at}", cell, other) for at, cell, other in beside])
    yield claim(7, "No residual: decay mask and RoPE reduce the bias to earlier items", gaps)
    gaps = q.of_gaps(q.rises, [(f"none − {at}", cell, other, "middle-last") for at, cell, other in beside])
    yield claim(8, "No residual: decay mask and RoPE raise the last item against the middle one", gaps)
    gaps = q.of_gaps(q.rises, [(f"RoPE − decay, {depth}", rope[depth], decay[depth]) for depth in plain])
    yield claim(9, "No residual: the decay mask turns attention to recent items more than RoPE", gaps)
    shallow = next(iter(decay.values()))
    sentence = f"No residual: at depth {shallow.depth} the decay mask favours later items"
    later = q.of_gaps(q.signed, [("decay", shallow, "first-last", -1)])
    yield claim(10, sentence, later, provenance="ours")


def deeper(claim: Maker, number: int, cells: Sequence[Setting], **about: Any) -> Claim:
    """That the deepest networks are more biased than the shallowest, with every encoding."""
    ends = [(title, named[-1], named[0]) for title, named in _by_depth(cells).items()]
    _, deep, shallow = ends[0]
    sentence = f"depth {deep.depth} favours earlier items more than depth {shallow.depth}"
    return claim(number, f"{_kind(cells)}: {sentence}", q.of_gaps(q.rises, ends), **about)


def each_step(claim: Maker, number: int, cells: Sequence[Setting], **about: Any) -> Claim:
    """That every step of depth adds to the bias, not only the whole way."""
    steps = [
        (f"{title}, depth {shallow.depth} to {deep.depth},", deep, shallow)
        for title, named in _by_depth(cells).items()
        for shallow, deep in pairwise(named)
    ]
    sentence = "every step of depth adds to the bias to earlier items, with every encoding"
    return claim(number, f"{_kind(cells)}: {sentence}", q.of_gaps(q.rises, steps), **about)


# --- networks with residual connections --------------------------------------------------------------------


def with_residual(claim: Maker, cells: Sequence[Setting], after: int = 0) -> Iterator[Claim]:
    """Claims 1 to 4 of Figure 5, 11 to 14 of Figure 2, where they stand `after` ten others."""
    yield still_biased(claim, after + 1, cells)
    sentence = "Residual: position bias is non-monotonic in depth: first–last both rises and falls"
    yield claim(after + 2, sentence, q.turning(series_of(cells)))
    steps = {title: [*pairwise(named)] for title, named in _by_depth(cells).items()}
    places = [
        (f"{a} − {b}, depth {step[0].depth} to {step[1].depth},", *step, *other)
        for a, b in combinations(steps, 2)
        for step, other in zip(steps[a], steps[b], strict=True)
    ]
    surest = q.surest_of(q.of_gaps(q.interaction, places))
    sentence = "Residual: what depth does to it depends on the encoding"
    yield claim(after + 3, sentence, surest, strength="hedged")
    _, deepest = steps["RoPE"][-1]
    at = f"RoPE, depth {deepest.depth}"
    gaps = q.of_gaps(q.signed, [(at, deepest, "first-middle"), (at, deepest, "middle-last", -1)])
    about = {
        "place": "Section 5.2, footnote 2; Appendix K.3",
        "scope": "the deep-layer regime, whose depth is not given",
    }
    if deepest.depth == DEEP_FROM:  # the depth from which a network is deep is ours
        about["provenance"] = "ours"
    sentence = f"Residual: RoPE at depth {deepest.depth} is lost in the middle"
    if "provenance" not in about:
        sentence = (
            f"Residual: RoPE in the deep-layer regime is lost in the middle (here at depth {deepest.depth})"
        )
    yield claim(after + 4, sentence, gaps, **about)


def still_biased(claim: Maker, number: int, cells: Sequence[Setting]) -> Claim:
    """That residual connections leave a gap of some sign at every depth, which the text does not say."""
    sentence = "Residual: the causal mask alone still gives a position bias, at every depth"
    gaps = q.of_gaps(q.present, series_of(cells)["no encoding"].items())
    return claim(number, sentence, gaps, provenance="ours")


def emerges(claim: Maker, number: int, cells: Sequence[Setting]) -> Claim:
    """That there is a gap of some sign in networks with residual connections."""
    places = [(f"{RELATIVE[cell.positional]}, depth {cell.depth}", cell) for cell in cells]
    surest = q.surest_of(q.of_gaps(q.present, places))
    return claim(number, "Residual: position bias still emerges", surest)


# --- all networks ------------------------------------------------------------------------------------------


def nowhere_lost(claim: Maker, number: int, cells: Sequence[Setting]) -> Claim:
    """That training without position bias leaves no network lost in the middle, the paper's exception apart."""
    places = [
        (f"{cell.positional}, depth {cell.depth}, {'' if cell.residual else 'no '}residual", cell)
        for cell in cells
        if not (cell.residual and cell.positional == "rope" and cell.depth >= DEEP_FROM)
    ]
    sentence, about = "Training without position bias leaves no network lost in the middle", {}
    if places[-1][1].residual:
        sentence += f" (residual networks with RoPE from depth {DEEP_FROM} on apart)"
        about["scope"] = "all but the deep-layer regime with RoPE, whose depth is not given"
    place = "Section 5.2, the role of data"
    return claim(number, sentence, q.of_gaps(q.spared, places), place=place, **about)


def equally_accurate(claim: Maker, number: int, cells: Sequence[Setting]) -> Claim:
    """Deepest against shallowest at equal in-context accuracy, since gaps drift while networks learn."""
    ends = [(title, named[-1], named[0]) for title, named in _by_depth(cells).items()]
    _, deep, shallow = ends[0]
    sentence = f"depth {deep.depth} favours earlier items more than {shallow.depth}"
    sentence = f"{_kind(cells)}: at equal in-context accuracy {sentence}"
    return claim(number, sentence, q.of_training(q.equally_accurate, ends), provenance="ours")


def harder(claim: Maker, number: int, cells: Sequence[Setting]) -> Claim:
    """That a fixed vocabulary is the harder task, where its cells stand beside those of the mixture."""
    sentence = "in-context accuracy after as many iterations is lower than with the Gaussian mixture"
    sentence = f"A fixed vocabulary is the harder task: {sentence}"
    return claim(number, sentence, q.learnt_less(cells), provenance="paper", strength="hedged")


def _kind(cells: Sequence[Setting]) -> str:
    """How sentences on such networks begin."""
    return "Residual" if cells[0].residual else "No residual"


def _by_depth(cells: Sequence[Setting]) -> dict[str, list[Setting]]:
    """Settings by encoding, from shallow to deep."""
    return {title: [cell for cell in cells if cell.positional == word] for word, title in RELATIVE.items()}


def series_of(cells: Sequence[Setting]) -> dict[str, dict[str, Setting]]:
    """Settings by encoding, and there by "depth 2", "depth 4" …"""
    by_encoding = _by_depth(cells).items()
    return {title: {f"depth {cell.depth}": cell for cell in named} for title, named in by_encoding}
