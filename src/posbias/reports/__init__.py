"""A measurement, its predictions and their agreement as one page that opens anywhere, offline, for good.

The page begins with four questions answered in plain words, and a picture; the evidence follows: what the
scores say, figures, tables, method, sources, caveats and provenance. Everything is inside it; each figure also
stands beside it as PNG and SVG, its numbers as CSV. The same measurement and seed give the same bytes.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from posbias.core.arguments import whole
from posbias.core.errors import InvalidValueError, MissingPackageError
from posbias.core.files import write_bytes, write_text

if TYPE_CHECKING:
    import xarray as xr

    from posbias.comparison.scores import Comparison
    from posbias.profiles.profile import Profile

__all__ = ["Report", "report", "write_report"]


@dataclass(frozen=True)
class Report:
    """What was written and found: the `page`, its `figures` (with their CSV), the `answer` in plain words, and
    the numbers.

    `verdicts` are what the scores say of the predictors, in sentences.
    """

    page: Path
    figures: list[Path]
    answer: list[str]
    comparison: "Comparison"
    predictions: "dict[str, Profile]"
    verdicts: list[str] = field(default_factory=list)


def write_report(
    measurement: "xr.Dataset",
    folder: str | os.PathLike[str],
    *,
    seed: int = 0,
    links: Mapping[str, str] | None = None,
) -> Report:
    """Predict, compare, draw, and write `report.html` and the figures into `folder`, each whole or not at all.

    `measurement` is a dataset as `docs/measurement.md` describes it; `seed` draws the resamples of the
    prompts; `links` name what lies beside the page, by file. Files of an earlier report are replaced. Raises
    `MissingPackageError` without matplotlib or jinja2, `InvalidValueError` if the measurement lacks something,
    `OutputFileError` if a file cannot be written.
    """
    whole("seed", seed, 0)
    if measurement.attrs.get("encoder"):
        raise InvalidValueError(
            "measurement: of an encoder given, one of a causal model needed; posbias.compare holds its influence "
            "against a prediction"
        )
    require("jinja2", "matplotlib")
    from posbias.comparison.held_out import folds
    from posbias.comparison.predictors import predictions
    from posbias.comparison.scores import compare_all
    from posbias.profiles.influence import measured_influence
    from posbias.reports.answer import answers
    from posbias.reports.evidence import Findings
    from posbias.reports.figures import illustrations
    from posbias.reports.page import render
    from posbias.reports.plots import picture_bytes
    from posbias.reports.verdicts import verdicts

    measured, predicted = measured_influence(measurement), predictions(measurement)
    comparison = compare_all(predicted, measured, held_out=folds(measurement), seed=seed)
    found = Findings(measurement, measured, predicted, comparison, seed)
    told, judged = answers(found), verdicts(found)
    plates, written = [], []
    for one in illustrations(found):
        pictures = {kind: picture_bytes(one.figure, kind) for kind in ("svg", "png")}
        plates.append((one, pictures["svg"]))
        beside = pictures | {"csv": one.numbers.csv().encode()}
        written += [write_bytes(Path(folder) / f"{one.name}.{kind}", beside[kind]) for kind in beside]
    page = render(found, told, judged, plates, links or {})
    place = write_text(Path(folder) / "report.html", page)
    return Report(place, written, [one.text for one in told], comparison, predicted, judged)


report = write_report
"""The verb: `posbias.report` and `posbias.write_report` are one function."""


def require(*packages: str) -> None:
    """Raise `MissingPackageError` for the first of `packages`, by import name, that is not installed."""
    import importlib

    for package in packages:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError:
            raise MissingPackageError(
                f"{package}: not installed, needed for a report; run: pip install 'posbias[report]'"
            ) from None
