"""What is said of depth (Figures 2, 4, 5, 13 and 14): claims on the gaps of causal networks by encoding.

Where the text says "bias toward earlier parts", the gap first–last is taken: the widest pair. Statements about
size are tested on gaps at the end of training; `equally_accurate` repeats the one on depth at equal in-context
accuracy.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from posbias.claims import Claim
from posbias.papers.wu2025 import quantities as q
from posbias.papers.wu2025.settings import RELATIVE, Setting
from posbias.papers.wu2025.tables import place_of

DEEP_FROM = 6
"""From this depth on residual networks with RoPE are deep: the paper's exception, without its depth."""


def both_kinds(name: str, cells: Sequence[Setting]) -> Iterator[Claim]:
    """Claims of Figure 2: networks without and with residual connections."""
    alone, residual = ([cell for cell in cells if cell.residual is kind] for kind in (False, True))
    yield from without_residual(name, alone)
    yield from with_residual(name, residual, after=10)
    yield nowhere_lost(f"{name}/15", cells)
    yield equally_accurate(f"{name}/16", alone)
    yield equally_accurate(f"{name}/17", residual)


def pure_attention(name: str, cells: Sequence[Setting]) -> Iterator[Claim]:
    """Claims of Figure 4 or 13: networks without residual connections."""
    yield from without_residual(name, cells)
    yield nowhere_lost(f"{name}/11", cells)
    yield equally_accurate(f"{name}/12", cells)
    if cells[0].inputs == "fixed_vocabulary":
        yield harder(f"{name}/13", cells)


def with_residuals(name: str, cells: Sequence[Setting]) -> Iterator[Claim]:
    """Claims of Figure 5 or 14: networks with residual connections, said to be like others in Figure 14."""
    if cells[0].inputs == "gaussian_mixture":
        yield from with_residual(name, cells)
        yield nowhere_lost(f"{name}/5", cells)
        yield equally_accurate(f"{name}/6", cells)
        return
    yield still_biased(f"{name}/1", cells)
    yield deeper(f"{name}/2", cells)
    yield each_step(f"{name}/3", cells)
    yield nowhere_lost(f"{name}/4", cells)
    yield equally_accurate(f"{name}/5", cells)
    yield harder(f"{name}/6", cells)


# --- networks without residual connections -----------------------------------------------------------------


def without_residual(name: str, cells: Sequence[Setting]) -> Iterator[Claim]:
    """Claims 1 to 10 of Figures 2, 4 and 13."""
    place, (plain, decay, rope) = place_of(name), series_of(cells).values()
    beside = [
        (f"{word}, {depth}", cell, other[depth])
        for depth, cell in plain.items()
        for word, other in (("decay", decay), ("RoPE", rope))
    ]
    sentence = "No residual: the causal mask alone favours earlier items, at every depth"
    gaps = q.of_gaps(q.signed, [(depth, cell, "first-last") for depth, cell in plain.items()])
    yield Claim(f"{name}/1", place, sentence, gaps)
    yield deeper(f"{name}/2", cells)
    yield each_step(f"{name}/3", cells)
    sentence = "No residual: middle against last differs less than first against last"
    gaps = q.of_gaps(q.smaller, [(f"no encoding, {depth}", cell) for depth, cell in plain.items()])
    yield Claim(f"{name}/4", place, sentence, gaps)
    sentence = "No residual: middle against last differs less than first against middle"
    named = [(f"no encoding, {depth}", cell, "first-middle") for depth, cell in plain.items()]
    yield Claim(f"{name}/5", place, sentence, q.of_gaps(q.smaller, named))
    sentence = "with decay mask and RoPE too, middle against last differs less than first against either"
    both = ("first-last", "first-middle")
    gaps = q.of_gaps(q.smaller, [(f"{at}, {pair},", other, pair) for at, _, other in beside for pair in both])
    yield Claim(f"{name}/6", place, f"No residual: {sentence}", gaps)
    sentence = "No residual: decay mask and RoPE reduce the bias to earlier items"
    gaps = q.of_gaps(q.rises, [(f"none − {at}", cell, other) for at, cell, other in beside])
    yield Claim(f"{name}/7", place, sentence, gaps)
    sentence = "No residual: decay mask and RoPE raise the last item against the middle one"
    gaps = q.of_gaps(q.rises, [(f"none − {at}", cell, other, "middle-last") for at, cell, other in beside])
    yield Claim(f"{name}/8", place, sentence, gaps)
    sentence = "No residual: the decay mask turns attention to recent items more than RoPE"
    gaps = q.of_gaps(q.rises, [(f"RoPE − decay, {depth}", rope[depth], decay[depth]) for depth in plain])
    yield Claim(f"{name}/9", place, sentence, gaps)
    shallow = next(iter(decay.values()))
    sentence = f"No residual: at depth {shallow.depth} the decay mask favours later items"
    yield Claim(f"{name}/10", place, sentence, q.of_gaps(q.signed, [("decay", shallow, "first-last", -1)]))


def deeper(id: str, cells: Sequence[Setting]) -> Claim:
    """That the deepest networks are more biased than the shallowest, with every encoding."""
    ends = {title: (*named.values(),) for title, named in series_of(cells).items()}
    shallow, *_, deep = ends["no encoding"]
    sentence = f"depth {deep.depth} favours earlier items more than depth {shallow.depth}"
    gaps = q.of_gaps(q.rises, [(title, own[-1], own[0]) for title, own in ends.items()])
    return Claim(id, place_of(id), f"{kind_of(shallow)}: {sentence}", gaps)


def each_step(id: str, cells: Sequence[Setting]) -> Claim:
    """That every step of depth adds to the bias, not only the whole way."""
    steps = [
        (f"{title}, depth {shallow.depth} to {deep.depth},", deep, shallow)
        for title, named in series_of(cells).items()
        for shallow, deep in pairwise(named.values())
    ]
    sentence = "every step of depth adds to the bias to earlier items, with every encoding"
    return Claim(id, place_of(id), f"{kind_of(steps[0][1])}: {sentence}", q.of_gaps(q.rises, steps))


# --- networks with residual connections --------------------------------------------------------------------


def with_residual(name: str, cells: Sequence[Setting], after: int = 0) -> Iterator[Claim]:
    """Claims 1 to 4 of Figure 5, 11 to 14 of Figure 2, where they stand `after` ten others."""
    place, series = place_of(name), series_of(cells)
    yield still_biased(f"{name}/{after + 1}", cells)
    sentence = "Residual: the bias to earlier items both rises and falls with depth"
    yield Claim(f"{name}/{after + 2}", place, sentence, q.turning(series))
    steps = {title: [*pairwise(named.values())] for title, named in series.items()}
    places = [
        (f"{a} − {b}, depth {step[0].depth} to {step[1].depth},", *step, *other)
        for a, b in combinations(series, 2)
        for step, other in zip(steps[a], steps[b], strict=True)
    ]
    sentence = "Residual: what depth does to it depends on the encoding"
    yield Claim(f"{name}/{after + 3}", place, sentence, q.surest_of(q.of_gaps(q.interaction, places)))
    _, deepest = steps["RoPE"][-1]
    sentence, at = f"RoPE at depth {deepest.depth} is lost in the middle", f"RoPE, depth {deepest.depth}"
    gaps = q.of_gaps(q.signed, [(at, deepest, "first-middle"), (at, deepest, "middle-last", -1)])
    scope = "the deep-layer regime, whose depth is not given"
    yield Claim(f"{name}/{after + 4}", "Appendix K.2", f"Residual: {sentence}", gaps, scope=scope)


def still_biased(id: str, cells: Sequence[Setting]) -> Claim:
    """That residual connections leave a gap of some sign."""
    sentence = "Residual: the causal mask alone still gives a position bias, at every depth"
    return Claim(id, place_of(id), sentence, q.of_gaps(q.present, series_of(cells)["no encoding"].items()))


# --- all networks ------------------------------------------------------------------------------------------


def nowhere_lost(id: str, cells: Sequence[Setting]) -> Claim:
    """That training without position bias leaves no network lost in the middle, the paper's exception apart."""
    places = [
        (f"{cell.positional}, depth {cell.depth}, {'' if cell.residual else 'no '}residual", cell)
        for cell in cells
        if not (cell.residual and cell.positional == "rope" and cell.depth >= DEEP_FROM)
    ]
    sentence, scope = "Training without position bias leaves no network lost in the middle", ""
    if places[-1][1].residual:
        sentence += f" (residual networks with RoPE from depth {DEEP_FROM} on apart)"
        scope = "all but the deep-layer regime with RoPE, whose depth is not given"
    return Claim(id, "Section 5.2", sentence, q.of_gaps(q.spared, places), scope=scope)


def equally_accurate(id: str, cells: Sequence[Setting]) -> Claim:
    """Deepest against shallowest at equal in-context accuracy, since gaps drift while networks learn."""
    series = series_of(cells)
    shallow, *_, deep = series["no encoding"].values()
    sentence = (
        f"at equal in-context accuracy depth {deep.depth} favours earlier items more than {shallow.depth}"
    )
    ends = [(title, *reversed((*named.values(),))) for title, named in series.items()]
    gaps = q.of_training(q.equally_accurate, [(title, last, first) for title, last, *_, first in ends])
    return Claim(id, place_of(id), f"{kind_of(shallow)}: {sentence}", gaps, provenance="ours")


def harder(id: str, cells: Sequence[Setting]) -> Claim:
    """That a fixed vocabulary is the harder task, where its cells stand beside those of the mixture."""
    sentence = "in-context accuracy after as many iterations is lower than with the Gaussian mixture"
    sentence = f"A fixed vocabulary is the harder task: {sentence}"
    return Claim(id, place_of(id), sentence, q.learnt_less(cells), strength="hedged")


def kind_of(cell: Setting) -> str:
    """How sentences on such networks begin."""
    return "Residual" if cell.residual else "No residual"


def series_of(cells: Sequence[Setting]) -> dict[str, dict[str, Setting]]:
    """Settings by encoding, and there by "depth 2", "depth 4" …"""
    series: dict[str, dict[str, Setting]] = {title: {} for title in RELATIVE.values()}
    for cell in cells:
        series[RELATIVE[cell.positional]][f"depth {cell.depth}"] = cell
    return series
