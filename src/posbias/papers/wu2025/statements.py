"""What the paper says of depth (Figures 2, 4, 5, 13, 14; Section 5.1, Appendices K.1, K.2, L), as claims on cells.

Where the text says "bias toward earlier parts", the gap first–last is taken: the widest pair. Statements about
size are tested on gaps at the end of training; `matched` repeats the one on depth at equal in-context accuracy.
What is said of biased training is in `training_data`, of attention sinks in `sinks`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np

from posbias.claims import Evidence, Judged, difference, judged_sentence, mean
from posbias.papers.wu2025.figures import RELATIVE, DepthFigure, Setting, settings_of
from posbias.papers.wu2025.gaps import (
    LEARNT,
    NETWORKS,
    Gaps,
    interaction,
    present,
    rises,
    signed,
    spared,
    surest,
    turns,
)
from posbias.training.matching import at_equal_accuracy, at_equal_iterations

if TYPE_CHECKING:
    from posbias.training.loop import Trained

Series = Mapping[str, Sequence[Gaps]]
DEEP_FROM = 6
"""From this depth on residual networks with RoPE are deep: the paper's exception, without its depth."""


def depth_claims(figure: DepthFigure, gaps: Mapping[Setting, Gaps]) -> list[Judged]:
    """The claims of Figures 2, 4, 5, 13 and 14."""
    claims = []
    for residual, depths in figure.depths.items():
        series = {
            title: [gaps[figure.setting(residual, word, depth)] for depth in depths]
            for title, word in RELATIVE.items()
        }
        claims += (_with_residual if residual else _without_residual)(figure, series)
    return [*claims, _no_middle(figure, gaps)]


def _without_residual(figure: DepthFigure, series: Series) -> list[Judged]:
    depths, kind = figure.depths[False], "No residual"
    plain, decay, rope = series.values()
    each = list(zip((f"depth {depth}" for depth in depths), plain, decay, rope, strict=True))
    return [
        judged_sentence(
            "No residual: the causal mask alone favours earlier items, at every depth",
            tuple(signed(depth, cell, "first-last") for depth, cell, *_ in each),
        ),
        _deeper(f"No residual: depth {depths[-1]} favours earlier items more than depth {depths[0]}", series),
        _each_step(kind, depths, series),
        judged_sentence(
            "No residual: middle against last differs less than first against last",
            tuple(_smaller(f"no encoding, {depth}", cell) for depth, cell, *_ in each),
        ),
        judged_sentence(
            "No residual: middle against last differs less than first against middle",
            tuple(_smaller(f"no encoding, {depth}", cell, "first-middle") for depth, cell, *_ in each),
        ),
        judged_sentence(
            "No residual: with decay mask and RoPE too, middle against last differs less "
            "than first against either",
            tuple(
                _smaller(f"{name}, {depth}, {pair},", cell, pair)
                for depth, _, *others in each
                for name, cell in zip(("decay", "RoPE"), others, strict=True)
                for pair in ("first-last", "first-middle")
            ),
        ),
        judged_sentence(
            "No residual: decay mask and RoPE reduce the bias to earlier items",
            tuple(
                rises(f"none − {name}, {depth}", cell, other)
                for depth, cell, *others in each
                for name, other in zip(("decay", "RoPE"), others, strict=True)
            ),
        ),
        judged_sentence(
            "No residual: decay mask and RoPE raise the last item against the middle one",
            tuple(
                rises(f"none − {name}, {depth}", cell, other, "middle-last")
                for depth, cell, *others in each
                for name, other in zip(("decay", "RoPE"), others, strict=True)
            ),
        ),
        judged_sentence(
            "No residual: the decay mask turns attention to recent items more than RoPE",
            tuple(rises(f"RoPE − decay, {depth}", last, middle) for depth, _, middle, last in each),
        ),
        judged_sentence(
            f"No residual: at depth {depths[0]} the decay mask favours later items",
            (signed("decay", decay[0], "first-last", -1),),
        ),
    ]


def _with_residual(figure: DepthFigure, series: Series) -> list[Judged]:
    depths, (plain, _, rope) = figure.depths[True], series.values()
    names = [f"depth {depth}" for depth in depths]
    there = judged_sentence(
        "Residual: the causal mask alone still gives a position bias, at every depth",
        tuple(present(name, cell) for name, cell in zip(names, plain, strict=True)),
    )
    if figure.inputs == "fixed_vocabulary":
        return [
            there,
            _deeper(
                f"Residual: depth {depths[-1]} favours earlier items more than depth {depths[0]}", series
            ),
            _each_step("Residual", depths, series),
        ]
    named = {title: dict(zip(names, cells, strict=True)) for title, cells in series.items()}
    deepest = f"RoPE, depth {depths[-1]}"
    return [
        there,
        turns("Residual: the bias to earlier items both rises and falls with depth", named),
        judged_sentence(
            "Residual: what depth does to it depends on the encoding", (_depends(names, series),)
        ),
        judged_sentence(
            f"Residual: RoPE at depth {depths[-1]} is lost in the middle",
            (signed(deepest, rope[-1], "first-middle"), signed(deepest, rope[-1], "middle-last", -1)),
        ),
    ]


def _deeper(sentence: str, series: Series) -> Judged:
    return judged_sentence(
        sentence, tuple(rises(name, cells[-1], cells[0]) for name, cells in series.items())
    )


def _each_step(kind: str, depths: Sequence[int], series: Series) -> Judged:
    """That every step of depth adds to the bias, not only the whole way."""
    steps = [f"depth {a} to {b}" for a, b in pairwise(depths)]
    return judged_sentence(
        f"{kind}: every step of depth adds to the bias to earlier items, with every encoding",
        tuple(
            rises(f"{name}, {step},", deep, shallow)
            for name, cells in series.items()
            for step, (shallow, deep) in zip(steps, pairwise(cells), strict=True)
        ),
    )


def _depends(names: Sequence[str], series: Series) -> Evidence:
    """That some step of depth changes the gap of two encodings differently: the surest such step and pair."""
    return surest(
        [
            interaction(
                f"{a} − {b}, {names[t]} to {names[t + 1].removeprefix('depth ')},",
                (series[a][t], series[a][t + 1]),
                (series[b][t], series[b][t + 1]),
                "first-last",
            )
            for a, b in combinations(series, 2)
            for t in range(len(names) - 1)
        ]
    )


def _no_middle(figure: DepthFigure, gaps: Mapping[Setting, Gaps]) -> Judged:
    """That training without position bias leaves no network lost in the middle, the paper's exception apart."""
    spoken = [
        one
        for one in settings_of(figure)
        if not (one.residual and one.positional == "rope" and one.depth >= DEEP_FROM)
    ]
    apart = f" (residual networks with RoPE from depth {DEEP_FROM} on apart)" if True in figure.depths else ""
    return judged_sentence(
        f"Training without position bias leaves no network lost in the middle{apart}",
        tuple(
            spared(f"{one.positional}, depth {one.depth}, {'' if one.residual else 'no '}residual", gaps[one])
            for one in spoken
        ),
    )


def _smaller(where: str, cell: Gaps, other: str = "first-last") -> Evidence:
    """That |middle-last| is below another gap's size, the signs being those of the means over networks."""
    sides = [cell.of(pair) for pair in (other, "middle-last")]
    if min(side.size for side in sides) == 0:
        return mean(where, sides[0], draws=NETWORKS)
    wide, narrow = (np.sign(side.mean()) * side for side in sides)
    return mean(where, wide - narrow, draws=NETWORKS)


# --- at equal accuracy, at equal iterations ----------------------------------------------------------------


def matched(figure: DepthFigure, trained: "Mapping[Setting, Trained]") -> list[Judged]:
    """Deepest against shallowest, at equal in-context accuracy instead of after training."""
    claims = []
    for residual, depths in figure.depths.items():
        shallow, deep = depths[0], depths[-1]
        effects = tuple(
            _at_equal_accuracy(title, *(trained[figure.setting(residual, word, d)] for d in (deep, shallow)))
            for title, word in RELATIVE.items()
        )
        kind = "Residual" if residual else "No residual"
        sentence = (
            f"{kind}: at equal in-context accuracy depth {deep} favours earlier items more than {shallow}"
        )
        claims.append(judged_sentence(sentence, effects))
    return claims


def _at_equal_accuracy(where: str, deep: "Trained", shallow: "Trained") -> Evidence:
    """That the gap first–last is larger in `deep`, on average over the accuracies from `LEARNT` on both reach."""
    levels = np.arange(LEARNT, 1.0, 0.02)
    both = at_equal_accuracy(deep, shallow, "first-last", levels.tolist())
    if not both.points.size:
        return Evidence(where, flaw=f"no common accuracy from {LEARNT} on")
    at = f"{where} at accuracy {both.points[0]:.2f} to {both.points[-1]:.2f}"
    return difference(at, both.one.mean(axis=1), both.other.mean(axis=1), draws=NETWORKS)


def harder(figure: DepthFigure, trained: "Mapping[Setting, Trained]") -> list[Judged]:
    """That a fixed vocabulary is the harder task (Appendix L), where its cells stand beside those of the mixture.

    Every network counts, and the learning curves of the two are read after equally many iterations.
    """
    if figure.inputs != "fixed_vocabulary":
        return []
    effects = []
    for setting in settings_of(figure):
        mixture, where = (
            replace(setting, inputs="gaussian_mixture"),
            f"{setting.positional}, depth {setting.depth}",
        )
        if mixture not in trained:
            effects.append(Evidence(where, flaw="the Gaussian mixture was not trained along with it"))
            continue
        both = at_equal_iterations(trained[mixture], trained[setting], "in_context_accuracy")
        if not both.points.size:
            effects.append(Evidence(where, flaw=both.remark))
            continue
        at = f"{where}, after {both.points[-1]:.0f} iterations,"
        effects.append(difference(at, both.one[:, -1], both.other[:, -1], draws="networks"))
    return [
        judged_sentence(
            "A fixed vocabulary is the harder task: in-context accuracy after as many iterations is lower "
            "than with the Gaussian mixture",
            tuple(effects),
        )
    ]
