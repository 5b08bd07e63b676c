"""Both readings of every discrepancy: what a paper or its code has, what holds, and the difference it makes.

    from posbias_papers.readings import compare_readings

    for one in compare_readings(["wu2025", "kim2026/eq-42"]):
        print(one.quantity, one.published, one.corrected, one.difference)

Each belongs to an entry of `posbias_papers.errata`. Statements are shown on their counterexample; closed forms
against integrals and simulations; models from presets, from the authors' rollout files where they are given, and
measured on the bundled ALiBi model.
"""

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from posbias.core.errors import MissingPackageError
from posbias.core.progress import Event, OnEvent
from posbias_papers import choose
from posbias_papers.errata import (
    ERRATA,
    Comparison,
    Discrepancy,
    Material,
    UnavailableError,
    answer,
    find_erratum,
)
from posbias_papers.herasimchyk2026.levels import config_curves
from posbias_papers.readings import herasimchyk2026, kim2026, wu2025
from posbias_papers.statements import STATEMENTS, Statement
from posbias_papers.statements.margins import Margin

__all__ = ["ERRATA", "READINGS", "Material", "UnavailableError", "compare_readings", "find_readings"]

log = logging.getLogger("posbias.papers")


def of_witness(statement: Statement) -> Discrepancy:
    """That of a statement on its counterexample: the bound as printed, and the true value."""

    def compute(material: Material) -> Comparison:
        compared = statement.slack(statement.witness or {})
        assert isinstance(compared, Margin)
        smaller, larger = sorted(map(abs, (compared.bound, compared.value)))
        ratio: dict[str, Any] = {"larger_over_smaller": larger / smaller} if smaller else {}
        return answer(compared.bound, compared.value, **ratio)

    quantity = f"{statement.shows}: bound, true"
    return Discrepancy(statement.erratum, quantity, compute, find_erratum(statement.erratum))


_COMPUTED = [one for paper in (wu2025, herasimchyk2026, kim2026) for one in vars(paper).values()]
_ALL = [of_witness(one) for one in STATEMENTS if one.shows]
_ALL += [one for one in _COMPUTED if isinstance(one, Discrepancy)]
READINGS: tuple[Discrepancy, ...] = tuple(sorted(_ALL, key=lambda one: ERRATA.index(one.erratum)))
"""Every discrepancy, in the order of the errata."""


def find_readings(names: str | Iterable[str] | None = None) -> list[Discrepancy]:
    """Those of these names, in the order of `READINGS`: keys, keys of errata, or papers; none given: all.

    Raises `InvalidValueError` naming the nearest.
    """
    expected = "reading: expected a paper or one of its readings, such as kim2026/eq-42"
    return choose(expected, READINGS, names or (), lambda one: (one.key, one.erratum.key, one.erratum.paper))


def compare_readings(
    names: str | Iterable[str] | None = None,
    *,
    results: str | os.PathLike[str] | None = None,
    configs: str | os.PathLike[str] | None = None,
    on_event: OnEvent | None = None,
) -> list[Comparison]:
    """Compute readings both ways; all of them take about a minute on two cores.

    `names` as in `find_readings`. `results` is a folder of results whose measurements are used where it has them,
    `configs` one of the authors' rollout files. What cannot be computed for want of these, or of torch, is left
    out and logged; `on_event` counts those that are done.

    Raises `InvalidValueError` for an unknown name, `InputFileError` for rollout files that are none, before any
    work, `UnavailableError` when readings were named and none of them can be computed.
    """
    wanted = find_readings(names)
    if configs is not None:
        config_curves(configs)  # what is wrong with them is said before any work
    material = Material(Path(results) if results else None, Path(configs) if configs else None)
    comparisons, left = [], []
    for done, one in enumerate(wanted, 1):
        try:
            comparisons.append(one.compare(material))
        except (UnavailableError, MissingPackageError) as error:
            left.append(f"{one.key}: left out, {error}")
        if on_event:
            on_event(Event(done, len(wanted), "reading"))
    if names and not comparisons:
        raise UnavailableError(left[0])
    for line in left:
        log.warning(line)
    return comparisons
