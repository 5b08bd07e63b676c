"""`posbias report`: a model measured, predicted and compared, on one page."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from posbias.cli import options as shared
from posbias.cli.explore import write_measured
from posbias.cli.measure import measured, results_of
from posbias.cli.output import answer_with
from posbias.cli.terminal import comparison_table
from posbias.core.errors import OtherKindError
from posbias.core.packages import need
from posbias.reports import answers

if TYPE_CHECKING:
    import xarray as xr

log = logging.getLogger(__name__)
EXPLORE = "its architecture with sliders, over this curve"
"""What a report says of the page of `posbias explore` that lies in its folder."""


@shared.options
class Options:
    """What is measured, and where the report goes.

    Parameters
    ----------
    tokens
        Length of every prompt. Default: 256. Of results at several context lengths take this one, or all: their
        mean; default: a page for each.
    prompts
        Number of prompts, drawn without replacement. Default: 32.
    prompting
        What the prompts are.
    loading
        How the model is loaded.
    out
        The folder to write to. Default: results/NAME, or next to a measurement's file, with its name.
    """

    tokens: shared.ContextLength = None
    prompts: shared.Whole | None = None
    columns: shared.Columns = None
    seed: shared.Seed = 0
    prompting: shared.Prompting = shared.Prompting()
    loading: shared.Loading = shared.Loading()
    threads: shared.TorchThreads = None
    out: shared.Folder | None = None
    rerun: shared.Rerun = False
    json: shared.Json = False


def report(source: str = shared.DEFAULT_MODEL, *, options: Options = Options()) -> None:
    """Write a report that opens in any browser: a model measured, predicted five ways, and compared.

    Parameters
    ----------
    source
        A model (as for `posbias measure`), the .nc of a finished measurement, or a retrieval, a prediction or
        results made elsewhere (a file or folder), which become a shorter page.
    """
    from posbias.profiles.measurements import RETRIEVAL
    from posbias.reports import write_report

    # it is said before the model is measured
    need("jinja2", "matplotlib", work="a report", extra="report")
    if not (Path(source) / "config.json").exists() and _report_decisions(Path(source), options):
        return
    if _is_made_elsewhere(Path(source)):
        _report_profile(Path(source), options)
        return
    try:
        finished = _measurement(source, options)
    except OtherKindError as error:
        if error.held != RETRIEVAL:
            raise
        _report_profile(Path(source), options)
        return
    if finished is None:
        return
    measurement, written, folder = finished
    log.info("comparing and drawing …")
    explored = write_measured(measurement, written, folder / "explore.html")
    links = {} if explored is None else {explored.name: EXPLORE}
    page = write_report(measurement, folder, seed=options.seed, links=links)
    labels = {key: profile.predictor for key, profile in page.predictions.items()}
    about = {name: getattr(page, name) for name in ("page", "answer", "verdicts")}
    answer = answers.Report.of(page.comparison, measurement=written, explore=explored, **about)
    scores = comparison_table(page.comparison, labels)
    lines = [*page.answer, "", *page.verdicts, "", *scores, "", f"report: {page.page}"]
    answer_with(answer, lambda: lines, options.json)


def _is_made_elsewhere(path: Path) -> bool:
    """Whether it is a file or folder of results that is no model, by its name or, of a folder, its files."""
    from posbias.core.tables import is_table
    from posbias.imports import arrays, file_in, recognised

    if path.is_dir():
        return not (path / "config.json").exists() and (
            file_in(path) is not None or recognised(path) is not None
        )
    return is_table(path) or path.suffix.lower() in arrays.KINDS


def _report_decisions(path: Path, options: Options) -> bool:
    """The page of decisions, kept or made elsewhere; whether the file or folder holds some."""
    from posbias.choice.answer import read_choices
    from posbias.reports.choices import write_choices_report

    choices = read_choices(path, options.columns)
    if choices:
        shared.refuse(options, "none with a file of decisions", kept=("out", "json", "columns"))
        place = options.out or shared.RESULTS / path.stem
        answer, lines = write_choices_report(choices, place, title=path.name)
        answer_with(answer, lambda: lines, options.json)
    return bool(choices)


def _report_profile(path: Path, options: Options) -> None:
    """The page of results made elsewhere (of each context length, one) or of a retrieval or prediction of ours."""
    from posbias.imports import read_curves
    from posbias.imports.columns import Choice
    from posbias.reports.profile_page import write_profile_report

    shared.refuse(options, "none with a file of results", kept=("out", "json", "tokens", "columns"))
    curves = read_curves(path, Choice(None, options.tokens, options.columns or {}))
    place, pages, lines = options.out or Path("results") / path.stem, [], []
    for length, profile in curves.items():
        unit = "documents" if "documents" in profile.attrs else "tokens"
        folder = place if len(curves) == 1 else place / f"{length:.0f}-{unit}"
        title = path.name if len(curves) == 1 else f"{path.name}, {length:,.0f} {unit}"
        pages.append(one := write_profile_report(profile, folder, title=title))
        lines += [*([""] if lines else []), one.read_as["source"], "", *one.answer, "", f"report: {one.page}"]
    answer = answers.ReportProfile.of(pages[0], lengths=pages if len(pages) > 1 else [])
    answer_with(answer, lambda: lines, options.json)


def _measurement(source: str, options: Options) -> "tuple[xr.Dataset, Path, Path] | None":
    """The measurement, its file and the report's folder; None in all processes but the first."""
    if source.endswith(".nc"):
        from posbias.profiles.measurements import load_measurement

        shared.refuse(options, "none with a finished measurement", kept=("seed", "out", "json"))
        file = Path(source)
        # `posbias measure` gives each measurement.nc a folder of its own; other files may share theirs
        folder = file.parent if file.name == "measurement.nc" else file.with_suffix("")
        return load_measurement(file), file, options.out or folder
    if options.tokens == "all" or options.columns:
        raise shared.wrong("tokens", "a file of results with 'all' and columns, and no model", source)
    from posbias.measurement import MeasurementJob

    sizes = {name: size for name in ("tokens", "prompts") if (size := getattr(options, name)) is not None}
    job = MeasurementJob(seed=options.seed, **sizes, **options.prompting.as_job())
    place = options.out or results_of(source, options.prompting, job)
    finished = measured(source, place, job, options.loading, options.threads, options.rerun)
    return None if finished is None else (*finished, finished[1].parent)
