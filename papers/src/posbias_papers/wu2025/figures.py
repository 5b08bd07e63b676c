"""Table 1 and Figures 1 to 24 as studies: which networks are trained for each, and how they are drawn.

Figures 13 to 18 and 20 to 23 repeat others with a fixed vocabulary; 19 and 24 are captions of these. Nothing is
trained for Table 1, Figure 1 and the sinks of language models. Added are the learning curves of Figure 2,
windows and normalisers of which Section 4.1 speaks, and the gap by the strength λ of the direction that a
vocabulary shares (Appendix L); no figure shows these, and how strong shared directions are, other than the
paper's λ = .75 and 0, is ours. What is claimed of each stands in `claims.csv`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from posbias.core.progress import time_text
from posbias.profiles.claims import LEAST, Above
from posbias.profiles.estimate import Estimate
from posbias.theory.masks import Causal, Full, Mask, Prefix, SlidingWindow
from posbias_papers import read_rows
from posbias_papers.claims import Evidence, judged, mean
from posbias_papers.contrasts import RELATIVE, read_claims
from posbias_papers.pages import Page, Table
from posbias_papers.study import EFFORTS, INSTANCED, Basis, Recorded, Studies, Study, titled
from posbias_papers.wu2025 import drawing, observed
from posbias_papers.wu2025.outcomes import LEARNT, PAIRS, Outcome, Outcomes, basis_of, recorded
from posbias_papers.wu2025.settings import ABSOLUTE, DEEP, DEPTHS, FULL, NORMALISERS, QUICK, Setting
from posbias_papers.wu2025.table import decided_by, judge, outcomes_of, table

if TYPE_CHECKING:
    import pandas as pd

ALONE = [Setting(layers, False, positional=word) for word in RELATIVE for layers in DEPTHS]
RESIDUAL = [Setting(layers, True, positional=word) for word in RELATIVE for layers in DEEP]
"""Causal networks by encoding and depth, without and with residual connections."""
WINDOWS, PREFIXES = tuple(map(SlidingWindow, (5, 9, 13))), tuple(map(Prefix, (2, 4, 6)))
"""The masks of Figures 11 and 12."""
STRENGTHS = (0.0, 0.5, 0.75, 1.0)
"""λ of the vocabularies that are compared."""
SINKS = ("xiao2024", "attention sinks"), ("gu2025", "the metric of attention sinks")
MIDDLE = ("liu2024", "the middle that gets lost")


# --- what no contrast says: evidence from the rows of a table ------------------------------------------------
#
# Gaps drift with the stage of training: of two networks after the same iterations, the one that learns faster is
# further along. Ensembles are therefore compared when they can do equally much too: each network's curve is read
# where its in-context accuracy (or loss) first reaches a level, linearly between the evaluations around that
# moment.

LEARNT_LOSS = 2.4
"""Loss of training, in nats, by which networks of depth 2 have reached an in-context accuracy of `LEARNT`."""
NETWORKS = "networks that learnt to retrieve"


def _settings(rows: "pd.DataFrame") -> "Iterator[tuple[dict[str, Any], pd.DataFrame]]":
    """Every setting of some rows with its networks."""
    levels = [name for name in rows.index.names if name != "network"]
    for place, own in rows.groupby(level=levels, sort=False):
        yield dict(zip(levels, place if isinstance(place, tuple) else (place,), strict=True)), own


def spared(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """That a setting is not lost in the middle: that the first or the last item is not ahead of the middle one.

    It holds if one of the two is surely ahead by less than `LEAST` (Bonferroni over both), and fails if both are
    surely ahead by more. The effect is what the surer one lacks of `LEAST`.
    """
    for setting, own in _settings(rows):
        where = f"{setting['mask']}, {setting['positional']}, depth {setting['depth']}"
        where += "" if setting["residual"] else ", no residual"
        leads = own["first_middle"].dropna().to_numpy(), -own["middle_last"].dropna().to_numpy()
        ends = [mean("", lead, draws=NETWORKS, test=Above(LEAST, least=0.0)) for lead in leads]
        if any(end.flaw for end in ends):
            yield Evidence(f"{where}, not lost in the middle", flaw=ends[0].flaw or ends[1].flaw)
            continue
        surer = min(ends, key=lambda end: end.against)
        lacks = f"{where}, {LEAST} − ({'first' if surer is ends[0] else 'last'} − middle)"
        opposite = max(end.p for end in ends)
        lacking = Estimate(LEAST) - surer.estimate
        yield Evidence(lacks, lacking, test=Above(least=0.0), picked=2, opposite=opposite)


class Matched(NamedTuple):
    """A curve of two ensembles at the same points of accuracy, loss or iteration; none where they have none."""

    points: Float[np.ndarray, "point"]
    one: Float[np.ndarray, "member point"]
    other: Float[np.ndarray, "partner point"]


def at_equal(
    by: str, one: Outcome, other: Outcome, levels: Sequence[float], name: str = "first-last"
) -> Matched:
    """A curve of two ensembles where another (`in_context_accuracy`, `loss` or `iteration`) first meets levels.

    Levels that not every network of both meets are left out.
    """
    # levels are met from below, so the loss is looked at upside down
    sign = -1.0 if by == "loss" else 1.0
    points = sign * np.asarray(levels, dtype=np.float64)
    rising = [sign * _curve(outcome, by) for outcome in (one, other)]
    for curves in rising:
        met = (curves[:, :1] <= points) & (points <= curves.max(axis=1, keepdims=True))
        points = points[met.all(axis=0) & bool(len(curves))]
    sides = (_curve(outcome, name) for outcome in (one, other))
    return Matched(
        sign * points, *(_first_reached(*both, points) for both in zip(rising, sides, strict=True))
    )


def _curve(outcome: Outcome, name: str) -> Float[np.ndarray, "member step"]:
    """A learning curve of the networks that trained to the end; their iterations are the same."""
    curves = np.broadcast_to(outcome.curves[name], (len(outcome.loss), len(outcome.curves["iteration"])))
    return curves[outcome.finite]


def _first_reached(
    rising: Float[np.ndarray, "member step"],
    curves: Float[np.ndarray, "member step"],
    levels: Float[np.ndarray, "point"],
) -> Float[np.ndarray, "member point"]:
    """Each network's curve at the moment its rising one first reaches each level (all within its range)."""
    after = (rising[:, :, None] >= levels).argmax(axis=1)
    before = np.maximum(after - 1, 0)
    low, high = (np.take_along_axis(rising, place, axis=1) for place in (before, after))
    first, last = (np.take_along_axis(curves, place, axis=1) for place in (before, after))
    with np.errstate(invalid="ignore"):
        share = np.where(high > low, (levels - low) / (high - low), 1.0)
    return first + share * (last - first)


def _ends(rows: "pd.DataFrame") -> Iterator[tuple[str, Outcome, Outcome]]:
    """By encoding the networks of the greatest depth and of the least."""
    cells = rows.reset_index().drop_duplicates(["positional", "depth"]).to_dict("records")
    outcomes = {(row["positional"], row["depth"]): row["outcome"] for row in cells}
    least, most = (pick(depth for _, depth in outcomes) for pick in (min, max))
    for word, title in RELATIVE.items():
        if least < most and {(word, least), (word, most)} <= outcomes.keys():
            yield title, outcomes[word, most], outcomes[word, least]


def equally_accurate(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """That the gap first–last is larger in the deepest networks, averaged over the accuracies that both reach."""
    levels = np.arange(LEARNT, 1.0, 0.02).tolist()
    return _matched(rows, "in_context_accuracy", levels, f"no common accuracy from {LEARNT} on")


def equally_low(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """The same at equal loss of training."""
    levels = np.arange(LEARNT_LOSS, 0.0, -0.1).tolist()
    return _matched(rows, "loss", levels, f"no common loss from {LEARNT_LOSS} down")


def _matched(rows: "pd.DataFrame", by: str, levels: Sequence[float], flaw: str) -> Iterator[Evidence]:
    for where, deep, shallow in _ends(rows):
        both = at_equal(by, deep, shallow, levels)
        if not both.points.size:
            yield Evidence(where, flaw=flaw)
            continue
        word, digits = ("loss", ".1f") if by == "loss" else ("accuracy", ".2f")
        at = f"{where} at {word} {both.points[0]:{digits}} to {both.points[-1]:{digits}}"
        yield mean(at, both.one.mean(axis=1), both.other.mean(axis=1), draws=NETWORKS)


def harder_to_train(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """By how much the loss of training is higher, and in-context accuracy lower, in the deepest networks."""
    for curve, sign in (("loss", 1), ("in_context_accuracy", -1)):
        for where, deep, shallow in _ends(rows):
            yield _after_as_many(f"{where} {curve}", deep, shallow, curve, sign)


def learnt_less(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """By how much in-context accuracy is below that with the Gaussian mixture, after as many iterations.

    Where the mixture was not trained along with it, nothing is decided.
    """
    for setting, own in _settings(rows):
        where = f"{setting['positional']}, depth {setting['depth']}"
        mixture, outcome = own["mixture"].iloc[0], own["outcome"].iloc[0]
        if mixture is None:
            yield Evidence(where, flaw="the Gaussian mixture was not trained along with it")
            continue
        yield _after_as_many(where, mixture, outcome, "in_context_accuracy", 1)


def _after_as_many(where: str, one: Outcome, other: Outcome, curve: str, sign: int) -> Evidence:
    both = at_equal("iteration", one, other, one.curves["iteration"].tolist(), curve)
    if not both.points.size:
        return Evidence(where, flaw="no iteration at which both were looked at")
    at = f"{where} after {both.points[-1]:,.0f} iterations"
    return mean(at, sign * both.one[:, -1], sign * both.other[:, -1], draws="networks")


def most_of_main_text(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """That most findings of the main text that Figures 13 and 15 repeat, those of Figures 4 and 3, hold of some
    rows too: their share less one half, where an open one counts half."""
    wanted = {"fig4": range(1, 10), "fig3": range(2, 7)}
    verdicts = []
    for claim in (claim for name in wanted for claim in CLAIMS[name]):
        name, _, number = claim.id.removeprefix("wu2025/").partition("/")
        if int(number) not in wanted[name]:
            continue
        evidence = tuple(claim.quantity(rows)) if claim.quantity else ()
        if not evidence:
            yield Evidence("findings", flaw=f"the networks of {claim.id} were not trained along with it")
            return
        verdicts.append(judged(claim, evidence).verdict)
    count, undecided = len(verdicts), verdicts.count("undecided")
    share = (verdicts.count("holds") + 0.5 * undecided) / count
    found = Estimate(share - 0.5, 0.5 * math.sqrt(undecided) / count)
    yield Evidence(f"share of {count} findings, less one half", found, test=Above(least=0.0))


def not_measured(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """That no model at hand is of the kind that a claim speaks of."""
    yield Evidence("language models", flaw="not measured: pretrained models of this kind needed")


CLAIMS = read_claims(Path(__file__).with_name("claims.csv"), globals())
"""By figure; a row whose quantity ends with parentheses names one of the functions above."""


# --- what a page says --------------------------------------------------------------------------------------

CAPTION = (
    "Means over the networks that have learnt to retrieve from their context (in-context accuracy of at least "
    f"{LEARNT}) with their standard error; accuracy and loss, on new classes, are means over all"
)


def page(frame: "pd.DataFrame") -> Page:
    """What was trained, and the gaps of every cell."""
    results = outcomes_of(frame)
    rows = []
    for setting, one in results.items():
        gaps = {
            pair.replace("-", "–"): Estimate.of_mean(one.of(pair)) if one.learnt.any() else None
            for pair in PAIRS
        }
        means = {name: float(getattr(one, name)[one.finite].mean()) for name in ("accuracy", "loss")}
        learnt = f"{one.learnt.sum()} of {one.learnt.size}"
        rows.append({"setting": str(setting), **gaps, **means, "learnt": learnt})
    basis = basis_of(results, len(results))
    data = {"cells": cells_of(results), "rests_on": vars(basis)}
    return Page(note=_note(results, basis), tables=(Table.of(CAPTION, rows),), data=data)


def cells_of(results: Outcomes) -> list[dict[str, Any]]:
    """The gaps of some cells as rows for JSON: of the networks that have learnt, and of every one."""
    rows = []
    for setting, outcome in results.items():
        for pair in PAIRS:
            learnt = outcome.of(pair)
            estimate = Estimate.of_mean(learnt) if learnt.size else None
            row = {"setting": str(setting), "pair": pair, "learnt": learnt.size, "members": len(outcome.loss)}
            row |= {"gap": estimate and {"value": estimate.value, "se": estimate.se}}
            row |= {"every_gap": outcome.gaps[pair], "in_context_accuracy": outcome.accuracy}
            rows.append(row | {"loss": outcome.loss})
    return rows


def _note(results: Outcomes, basis: Basis) -> str:
    """In a line, what was trained and how it was tested, and how many cells are recorded results if any is."""
    spent = sorted({(setting.depth, outcome.iterations) for setting, outcome in results.items()})
    steps = sorted({f"{count:,}" for _, count in spent})
    if len(steps) > 1:
        steps = [f"{count:,} (depth {depth})" for depth, count in spent]
    words = f"{basis.networks} networks per cell, {', '.join(steps)} iterations"
    words += f", {basis.sequences:,} test sequences"
    first = next(iter(results.values()))
    words += f", middle item {first.middle} (from 0)" if first.middle is not None else ""
    words += f", {basis.inputs}"
    recorded = f"; {basis.recorded} of {basis.cells} cells are recorded results" if basis.recorded else ""
    return words + recorded


# --- trained networks --------------------------------------------------------------------------------------


def _study(name: str, cells: Iterable[Setting], draw: Callable[..., Any], *compared: Setting) -> Study:
    """A study of trained networks, of gaps or of sinks; claims may look at further networks, `compared`."""
    cells = tuple(dict.fromkeys(cells))
    curved = not any("sink" in str(claim.quantity) for claim in CLAIMS.get(name, ()))
    minutes = QUICK.minutes(cells), FULL.minutes(cells)
    return Study(
        *titled(f"wu2025/{name}"),
        tuple(CLAIMS.get(name, ())),
        cells,
        minutes,
        "iterations",
        partial(table, cells=cells, compared=compared),
        page,
        draw,
        partial(judge, curved=curved),
        recorded,
        needs="torch",
        uses=(MIDDLE,) if curved else SINKS[:1],
        decided_by=decided_by(name, time_text(60 * minutes[1]), curved),
    )


def _vocabulary(cells: Iterable[Setting]) -> list[Setting]:
    return [replace(cell, inputs="fixed_vocabulary") for cell in cells]


def _biased(*answers: str) -> list[Setting]:
    """The networks of a figure on training that asks for certain items."""
    encodings = [(mask, word) for mask in (Full(), Causal()) for word in ABSOLUTE]
    return [Setting(mask=mask, positional=word, answers=answers) for mask, word in encodings]


def _two_layers(*masks: Mask) -> list[Setting]:
    """The networks whose sinks are looked at, without and with residual connections."""
    return [Setting(residual=residual, mask=mask) for residual in (False, True) for mask in masks]


def _twice(first: int, again: int, cells: Sequence[Setting], draw: Callable[..., Any]) -> Iterator[Study]:
    """A figure, and the one that repeats it with a fixed vocabulary."""
    yield _study(f"fig{first}", cells, draw)
    # what Appendix L says of the main text's findings together is judged with Figure 13
    compared = _vocabulary(_biased("first", "last")) if again == 13 else ()
    yield _study(f"fig{again}", _vocabulary(cells), draw, *compared)


def _figures() -> Iterator[Study]:
    yield _study("fig2", [*ALONE, *(cell for cell in RESIDUAL if cell.depth in DEPTHS)], drawing.draw_depths)
    yield from _twice(3, 15, _biased("first", "last"), drawing.draw_biased_training)
    yield from _twice(4, 13, ALONE, drawing.draw_depths)
    yield from _twice(5, 14, RESIDUAL, drawing.draw_depths)
    for number, item in ((6, "first"), (7, "middle"), (8, "last")):
        yield from _twice(number, number + 10, _biased(item), drawing.draw_biased_training)
    yield from _twice(9, 20, _two_layers(Causal()), drawing.draw_maps)
    yield from _twice(10, 21, _two_layers(Causal()), drawing.draw_sinks)
    yield from _twice(11, 22, _two_layers(*WINDOWS), drawing.draw_sinks)
    yield from _twice(12, 23, _two_layers(*PREFIXES), drawing.draw_sinks)


def _beyond_figures() -> Iterator[Study]:
    def grouped(name: str, groups: Mapping[Setting, str]) -> Study:
        return _study(name, groups, partial(drawing.draw_groups, groups=groups))

    yield grouped("masks", {cell: cell.masked for cell in _two_layers(Causal(), *WINDOWS, *PREFIXES)})
    rows = {Setting(residual=False, normaliser=name): name.replace("_", " ") for name in NORMALISERS}
    yield grouped("normalisers", rows)
    names: dict[Setting, str] = {}
    for residual in (False, True):
        names[Setting(residual=residual)] = "mixture"
        for strength in STRENGTHS:
            cell = Setting(residual=residual, inputs="fixed_vocabulary", shared_direction=strength)
            names[cell] = f"λ = {strength:g}"
    yield grouped("anisotropy", names)


# --- nothing is trained for these --------------------------------------------------------------------------


def _untrained(name: str, basis: str, **options: Any) -> Study:
    """A study whose table needs nothing computed before; `basis` says in words what its claims rest on."""

    def known(study: Study) -> Recorded:
        return Recorded(basis, Basis(), EFFORTS, lambda: study.table({}))

    claims = tuple(CLAIMS.get(name, ()))
    about = *titled(f"wu2025/{name}"), claims, (), (0.05, 0.05), "iterations"
    return Study(*about, recorded=known, **options)


SHOWN: tuple[Mask, ...] = (Causal(), SlidingWindow(3), Prefix(2))
"""The masks of Figure 1, on five tokens and two layers: these sizes are ours, enough for the first token to reach
the last under each of them."""
LONGEST = 32
"""The tokens up to which centre nodes are looked for, under every window and prefix."""


def centres_table(results: Any = None) -> "pd.DataFrame":
    """How many `masks` of a kind there are up to `LONGEST` tokens.

    `others` is how many of them have other centre nodes than the first token, or than the prefix.
    """
    import pandas as pd

    from posbias.theory.graph import centre_nodes

    lengths = range(2, LONGEST + 1)
    cases: dict[str, list[tuple[Mask, int]]] = {
        "causal": [(Causal(), n) for n in lengths],
        "sliding window": [(SlidingWindow(w), n) for n in lengths for w in range(2, n + 1)],
        "prefix": [(Prefix(k), n) for n in lengths for k in range(1, n + 1)],
    }
    rows = []
    for name, masks in cases.items():
        own = [[*range(mask.length if isinstance(mask, Prefix) else 1)] for mask, _ in masks]
        others = sum(
            centre_nodes(mask, n).tolist() != first for (mask, n), first in zip(masks, own, strict=True)
        )
        rows.append({"masks of a kind": name, "masks": len(masks), "others": others})
    return pd.DataFrame(rows).set_index("masks of a kind")


def draw_masks(frame: "pd.DataFrame", caption: str) -> Any:
    """Figure 1: masks as graphs, their centre nodes, and the walks that information takes; no caption."""
    from posbias_papers.plots import mask_figure

    return mask_figure(SHOWN, 5, 2)


def observations(_: Any = None) -> "pd.DataFrame":
    """Table 1: the observation, who made it, where the paper's results on it stand, and the ids of the claims that
    judge these."""
    import pandas as pd

    folder = Path(__file__).parent
    held = [({*row["place"].split(", ")}, row["claims"].split()) for row in read_rows(folder / "items.csv")]
    frame = pd.read_csv(folder / "table1.csv", keep_default_na=False)
    frame["claims"] = [
        ", ".join(dict.fromkeys(one for at, own in held if at & {*results.split("; ")} for one in own))
        for results in frame["results"]
    ]
    return frame.set_index("observation")


def _observations_page(frame: "pd.DataFrame") -> Page:
    caption = "Observations on position bias, and the claims that judge the paper's results on each"
    rows = frame.reset_index().to_dict("records")
    note = "`posbias paper claims wu2025` has the verdicts"
    return Page(note=note, tables=(Table.of(caption, rows),), data={"rows": rows})


# --- all ---------------------------------------------------------------------------------------------------


def _all() -> Iterator[Study]:
    figures = {study.name: study for study in _figures()}
    yield _untrained(
        "table1",
        "what is printed",
        table=observations,
        page=_observations_page,
        uses=(
            ("kazemnejad2023", "the causal mask without encoding"),
            ("su2024", "decay by rotation"),
            *reversed(SINKS),
            MIDDLE,
        ),
    )
    yield _untrained(
        "fig1", "every mask of a kind", tested_on=INSTANCED, draw=draw_masks, table=centres_table
    )
    yield from sorted(figures.values(), key=lambda study: int(study.name.removeprefix("fig")))
    yield _study("curves", figures["fig2"].cells, drawing.draw_curves)
    yield _untrained(
        "observed-sinks",
        observed.BASIS,
        table=observed.sinks_table,
        page=observed.sinks_page,
        draw=observed.draw_observed,
        uses=tuple(reversed(SINKS)),
    )
    yield from _beyond_figures()


CAPTIONS = {
    "fig19": tuple(f"fig{number}" for number in range(15, 19)),
    "fig24": tuple(f"fig{number}" for number in range(21, 24)),
}
"""Numbers that are the captions of other figures, which stand for them."""
STUDIES = Studies(_all(), CAPTIONS)
"""Table 1, every figure from 1 to 24, the learning curves of Figure 2, and what Section 4.1 and Appendix L add."""
