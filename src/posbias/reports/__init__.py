"""A measurement, its predictions and their agreement as one page that opens anywhere, offline, for good.

The page begins with four questions answered in plain words, and a picture; the evidence follows: what the
scores say, figures, tables, method, sources, caveats and provenance. Everything is inside it; each figure also
is written next to it as PNG and SVG, its numbers as CSV. The same measurement and seed give the same bytes.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from posbias.core.errors import whole, wrong
from posbias.core.packages import need

if TYPE_CHECKING:
    from posbias.comparison.scores import Comparison
    from posbias.profiles.measurements import AnyMeasurement
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
    measurement: "AnyMeasurement",
    folder: str | os.PathLike[str],
    *,
    seed: int = 0,
    links: Mapping[str, str] | None = None,
) -> Report:
    """Predict, compare, draw, and write `report.html` and the figures into `folder`, each whole or not at all.

    `measurement` is a dataset as `docs/measure.md` describes it, or its file; `seed` draws the resamples of the
    prompts; `links` say what is in the same folder, by file. Files of an earlier report are replaced. Raises
    `MissingPackageError` without matplotlib or jinja2, `InvalidValueError` if the measurement lacks something,
    `OutputFileError` if a file cannot be written.
    """
    from posbias.profiles.measurements import load_measurement

    whole("seed", seed, 0)
    measurement = load_measurement(measurement)
    if other := {"encoder", "layer_kinds"} & measurement.attrs.keys():
        raise wrong("measurement", "one of a decoder of softmax layers", got=f"one with {other.pop()}")
    need("jinja2", "matplotlib", work="a report", extra="report")
    from posbias.comparison.agreement import SPLITS
    from posbias.comparison.predictors import PREDICTORS, folds, predictions
    from posbias.comparison.scores import compare_all
    from posbias.core.sources import REPORTED, cite
    from posbias.profiles.profile import measured_influence
    from posbias.reports import tables
    from posbias.reports.figures import illustrations
    from posbias.reports.page import write_page
    from posbias.reports.profile_sentences import headline, lead
    from posbias.reports.sentences import Findings, answers, verdicts

    measured, predicted = measured_influence(measurement), predictions(measurement)
    comparison = compare_all(predicted, measured, held_out=folds(measurement), seed=seed)
    found = Findings(measurement, measured, predicted, comparison, seed)
    about = {"headline": headline(measured), "answers": answers(found), "verdicts": verdicts(found)}
    about |= {"title": f"Position bias of {found.model}", "lead": lead(measured), "links": links or {}}
    about |= {"found": found, "tables": tables, "splits": SPLITS, "predictors": PREDICTORS}
    about |= {"sources": [cite(key) for key in REPORTED]}
    page, figures = write_page(folder, "report.html", illustrations(found), **about)
    looks, *others = about["answers"].values()
    answered = [f"{about['headline']}. {looks}", *others]
    return Report(page, figures, answered, comparison, predicted, about["verdicts"])


report = write_report
"""The verb: `posbias.report` and `posbias.write_report` are one function."""
