"""`posbias paper readings`: what the papers publish beside what holds."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from posbias.cli import options as shared
from posbias.cli.output import answer_with, progress
from posbias.cli.paper.claims import wrapped

if TYPE_CHECKING:
    from posbias.papers.readings import Comparison


def readings(
    *names: str,
    out: shared.Results = shared.RESULTS,
    configs: shared.Configs = None,
    threads: shared.Threads = None,
    json: shared.Json = False,
) -> None:
    """Compare what the papers publish with what holds, wherever the two differ: both numbers and the difference.

    All of them take about a minute on two cores. Measurements of --out are used where it has them.

    Parameters
    ----------
    names
        Papers, or readings such as kim2026/eq-42. Default: all.
    """
    compared = comparisons(names, out, configs, threads)
    records = [comparison.as_dict() for comparison in compared]
    answer_with("paper-readings/1", {"readings": records}, lambda: _lines(compared), json)


def comparisons(
    names: Sequence[str], out: Path, configs: Path | None, threads: int | None = None
) -> "list[Comparison]":
    """Both readings of what has these names, computed with a bar."""
    from posbias.papers.readings import compare_readings

    with progress() as on_event:
        return compare_readings(names, results=out, configs=configs, threads=threads, on_event=on_event)


def _lines(compared: "Sequence[Comparison]") -> list[str]:
    """A table for each paper, then where each stands and what is to be said."""
    from posbias.papers.readings import told
    from posbias.sources import cite

    lines: list[str] = []
    for key in dict.fromkeys(reading.paper for reading in compared):
        own = [reading for reading in compared if reading.paper == key]
        lines += [cite(key).short, ""]
        for reading in own:
            names = ("published", "corrected", "difference")
            numbers = ", ".join(f"{name} {told(getattr(reading, name))}" for name in names)
            lines += [f"  {reading.key}  {numbers}"]
            lines += [*wrapped([f"{reading.where}: {reading.quantity}", reading.note], 4), ""]
    return [*lines, f"{len(compared)} reading{'s' * (len(compared) != 1)}"]
