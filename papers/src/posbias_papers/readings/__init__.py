"""Both readings of every discrepancy: what a paper or its code has, what holds, and the difference it makes.

    from posbias_papers.readings import compare_readings

    for one in compare_readings(["wu2025", "kim2026/eq-42"]):
        print(one.quantity, one.published, one.corrected, one.difference)

A reading belongs to an entry of `posbias_papers.errata` and computes one quantity twice: as printed (or as the
published code does it) and as it is. Statements are shown on the counterexample of `statements`; closed forms
beside integrals and simulations; models from presets, from the authors' rollout files where they are given, and
measured on the bundled ALiBi model.
"""

import logging
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError, MissingPackageError, nearest
from posbias.core.events import Event, OnEvent
from posbias_papers.errata import ERRATA, find_erratum
from posbias_papers.herasimchyk2026.configs import config_curves
from posbias_papers.readings import experiments, herasimchyk2026, kim2026, measured, models, recency, wu2025
from posbias_papers.readings.reading import Answer, Comparison, Material, Reading, UnavailableError, told

__all__ = [
    "ERRATA",
    "READINGS",
    "Answer",
    "Comparison",
    "Material",
    "Reading",
    "UnavailableError",
    "compare_readings",
    "find_readings",
    "told",
]

log = logging.getLogger("posbias.papers")
READINGS: tuple[Reading, ...] = tuple(
    one
    for module in (wu2025, experiments, herasimchyk2026, models, measured, kim2026, recency)
    for one in vars(module).values()
    if isinstance(one, Reading)
)
"""Every reading, paper by paper; the models' of Herasimchyk et al. 2026 come after its statements'."""


def find_readings(names: str | Iterable[str] | None = None) -> list[Reading]:
    """The readings of these names, in the order of `READINGS`: keys, keys of errata, or papers; none given: all.

    Raises `InvalidValueError` naming the nearest.
    """
    asked = [names] if isinstance(names, str) else list(names or ())
    known = {one: {one.key, one.about, one.paper} for one in READINGS}
    choices = sorted(set().union(*known.values()))
    for name in asked:
        if name not in choices:
            raise InvalidValueError(
                f"reading: {shortened(name)} given, "
                "a paper (wu2025, herasimchyk2026, kim2026) or one of its readings, "
                f"such as kim2026/eq-42, needed{nearest(name, choices)}"
            )
    return [one for one, called in known.items() if not asked or called & {*asked}]


def compare_readings(
    names: str | Iterable[str] | None = None,
    *,
    results: str | os.PathLike[str] | None = None,
    configs: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    on_event: OnEvent | None = None,
) -> list[Comparison]:
    """Compute readings both ways; all of them take about a minute on two cores.

    `names` as in `find_readings`. `results` is a folder of results whose measurements are used where it has them,
    `configs` one of the authors' rollout files, `threads` the cores for simulations. What cannot be computed for
    want of these, or of torch, is left out and logged; `on_event` hears how many are done.

    Raises `InvalidValueError` for an unknown name, `InputFileError` for rollout files that are none, before any
    work, `UnavailableError` when readings were named and none of them can be computed.
    """
    wanted = find_readings(names)
    if configs is not None:
        config_curves(configs)  # what is wrong with them is said before any work
    material = Material(
        None if results is None else Path(results), None if configs is None else Path(configs), threads
    )
    made: list[Comparison] = []
    left: list[str] = []
    for done, one in enumerate(wanted):
        if on_event is not None:
            on_event(Event(done, len(wanted), "reading"))
        try:
            made.append(_compare(one, material))
        except (UnavailableError, MissingPackageError) as error:
            left.append(f"{one.key}: left out, {error}")
    if on_event is not None:
        on_event(Event(len(wanted), len(wanted), "reading"))
    if names and not made:
        raise UnavailableError(left[0])
    for line in left:
        log.warning(line)
    return made


def _compare(one: Reading, material: Material) -> Comparison:
    began = time.perf_counter()
    found = one.compute(material)
    seconds = time.perf_counter() - began
    others = "; ".join(f"{name} {told(number)}" for name, number in found.others.items())
    return Comparison(
        key=one.key,
        paper=one.paper,
        where=re.sub(r"[`*\\]", "", find_erratum(one.about).where),
        quantity=one.quantity,
        published=found.published,
        corrected=found.corrected,
        difference=found.difference or found.corrected - found.published,
        note=" ".join(part for part in (found.note, f"Also: {others}." if others else "") if part),
        seconds=seconds,
        erratum=one.about,
        others=found.others,
    )
