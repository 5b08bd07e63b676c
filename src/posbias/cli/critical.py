"""`posbias predict --critical-distance`: where depth and decay balance, for each depth and strength of decay."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.cli.output import answer_with
from posbias.core.errors import InvalidValueError

if TYPE_CHECKING:
    from posbias.theory.architecture import Architecture
    from posbias.theory.critical_distances import DistanceCurve

VARIED = ("decay", "rope_angle")
"""What the curves may be drawn for several values of."""
ROWS = 24
"""Depths that a table has at most."""


def critical_distances(
    architecture: "Architecture",
    tokens: int,
    varied: Sequence[str],
    about: dict[str, Any],
    *,
    plot: Path | None,
    json: bool,
    out: Path | None,
) -> None:
    """Answer with x* and the peaks of walks × envelope and of the rollout, by depth.

    `varied` holds the spelling of one quantity, or nothing; `about` is what an answer says of the architecture.
    Raises `InvalidValueError` for one that Theorems 4.5 and 4.7 of Wu et al. 2025 do not speak of.
    """
    curves = _curves(architecture, tokens, varied)
    if plot is not None:
        from posbias.reports import plots

        figure = plots.new_figure()
        plots.draw_critical_distance(figure.subplots(), {curve.name: curve for curve in curves})
        plots.save_figure(figure, plot)
    from posbias.reports.answers.predictions import PredictCritical

    answer = PredictCritical.of(tokens=tokens, curves=curves, **about)
    answer_with(answer, partial(_lines, curves), json, out)


def _curves(architecture: "Architecture", tokens: int, varied: Sequence[str]) -> "list[DistanceCurve]":
    import numpy as np

    from posbias.theory.critical_distances import distance_curve
    from posbias.theory.quantities import QUANTITIES
    from posbias.theory.variation import values_of

    if len(varied) > 1:
        raise InvalidValueError(f"vary: {len(varied)} given with --critical-distance, one at most needed")
    variants = [architecture]
    if varied:
        name, values = values_of(varied[0])
        if name not in VARIED:
            raise InvalidValueError(
                f"vary: {name} given with --critical-distance, {' or '.join(VARIED)} needed; depth always varies"
            )
        variants = [QUANTITIES[name].change(architecture, value) for value in values]
    depths = np.unique(np.linspace(1, architecture.depth, min(ROWS, architecture.depth)).round().astype(int))
    return [distance_curve(_encoding_of(one), depths.tolist(), tokens) for one in variants]


def _encoding_of(architecture: "Architecture") -> Any:
    """The encoding of a stack that is what the theorems ask for: equal causal layers, attention alone."""
    from posbias.theory.architecture import Layer

    kinds = set(architecture.layers)
    plain = kinds == {Layer(positional=architecture.layers[0].positional)}
    if not plain or architecture.streams is not None or (architecture.coefficients != 1).any():
        raise InvalidValueError(
            "critical_distance: equal causal layers of one head, without content and residual connection, needed "
            "(--mixing attention_only)"
        )
    return architecture.layers[0].positional


def _lines(curves: "Sequence[DistanceCurve]") -> list[str]:
    from posbias.core.text_tables import plain, table

    head = ["encoding", "layers", "x*", "peak of walks × envelope", "peak of the rollout", "its drift"]
    rows = [
        [curve.name, str(depth), plain(x), str(modal), str(peak), plain(drift)]
        for curve in curves
        for depth, x, modal, peak, drift in zip(
            curve.depth, curve.predicted, curve.modal, curve.rollout, curve.drift, strict=True
        )
    ]
    said = "distances from the query, in tokens; x*: Wu et al. 2025, Theorems 4.5 and 4.7"
    return [*table(head, rows), "", said]
