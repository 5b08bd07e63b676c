"""`posbias explore`: an interactive page on which the parts of an architecture are chosen and the curve moves."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.cli.output import answer_with
from posbias.core.errors import InputFileError, InvalidValueError, OtherKindError, PosbiasError, wrong
from posbias.reports import answers

if TYPE_CHECKING:
    import xarray as xr

log = logging.getLogger(__name__)
SMALL = 400_000
"""Bytes of a page up to which nothing is said of its size."""
Begin = tuple[Any, int | None, dict[str, Any] | None]
"""The architecture that a page begins from, its length, and a measured curve, as far as there are any."""


@shared.options
class Options:
    """What the page begins from, and where it goes.

    Parameters
    ----------
    tokens
        Length of the text that the page begins with. Default: the file's `tokens`, else 256.
    out
        The page to write. Default: explore.html.
    no_open
        Write the page, and open no browser.
    """

    tokens: shared.Whole | None = None
    out: shared.Out = Path("explore.html")
    no_open: Annotated[shared.Flag, Parameter(name="--no-open")] = False
    json: shared.Json = False


def explore(source: str | None = None, *, options: Options = Options()) -> None:
    """Open an interactive page with sliders for depth, mask, encoding and λ.

    Parameters
    ----------
    source
        What to begin from: an architecture (a file or a name, as for `posbias predict`, or the JSON that it
        writes), a measurement (its .nc, or the JSON of `posbias measure --json`) or a retrieval (its file or
        folder), whose curve is drawn beneath the prediction.
    """
    from posbias.core.files import write_text
    from posbias.reports.explore.page import page

    if options.out.suffix not in (".html", ".htm"):
        raise shared.wrong("out", "a file that ends in .html", str(options.out))
    shared.check_targets(options.out, None, source)
    architecture, tokens, curve = _begin(source)
    tokens = tokens if options.tokens is None else options.tokens
    name = "" if source is None else Path(source).name
    written = write_text(options.out, page(architecture, tokens, name, [curve] if curve else []))
    opened = False
    if not options.no_open:
        import webbrowser

        opened = webbrowser.open(written.absolute().as_uri())
    line = f"page: {written}" + " (no browser was found; open it in one)" * (
        not opened and not options.no_open
    )
    if (size := written.stat().st_size) > SMALL:
        line += f"; {size / 1000:,.0f} kB, since each of its heads has numbers of its own"
    answer = answers.Explore.of(page=written, opened=opened, begins_from=source)
    answer_with(answer, lambda: [line], options.json)


def write_measured(found: "xr.Dataset", file: Path, out: Path) -> Path | None:
    """The page that begins from a measurement, whose file is `file`; None for one that the page cannot show."""
    from posbias.core.files import write_text
    from posbias.reports.explore.page import page

    architecture, tokens, curve = _of_measurement(found, file)
    try:
        html = page(architecture, tokens, file.name, [curve] if curve else [])
    except InvalidValueError as error:
        log.info("no interactive page: %s", error)
        return None
    return write_text(out, html)


def _begin(source: str | None) -> Begin:
    if source is None:
        return None, None, None
    from posbias.core.files import read_mapping
    from posbias.imports import file_in, is_asked
    from posbias.profiles.measurements import RETRIEVAL, load_measurement

    path = Path(source)
    if path.is_dir() and not (path / "config.json").exists():
        if (held := file_in(path)) is None:
            expected = "config.json, retrieval.nc or retrieval.json in it"
            raise wrong(path, expected, got="none", kind=InputFileError)
        return _of_retrieval(held)
    if path.suffix == ".nc":
        try:
            return _of_measurement(load_measurement(path, needs=("influence", "mixing")), path)
        except OtherKindError as error:
            if error.held != RETRIEVAL:
                raise
            return _of_retrieval(path)
    answer = read_mapping(path) if path.suffix == ".json" and path.is_file() else {}
    if is_asked(answer):
        return _of_retrieval(path)
    if str(answer.get("schema")).startswith("measure/"):
        measured = answers.Measure.read(answer, str(path))
        return _of_curve(path, measured.influence, measured.mixing, {"model": measured.model})
    from posbias.theory.configs import read_architecture

    read = read_architecture(source)
    return read.architecture, read.tokens, None


def _of_retrieval(path: Path) -> Begin:
    """The architecture of a model that was asked, where its name is known, and accuracy by place as shares."""
    from posbias.imports import read
    from posbias.theory.configs import read_architecture

    profile = read(path)
    if not profile.mass.any():
        raise InputFileError(f"{path}: expected an accuracy above 0 somewhere, got 0 at every place")
    shares = (profile.mass / profile.mass.sum()).tolist()
    title = f"{profile.name}: {profile.measures} by place, as shares"
    curve = {"key": "yours", "title": title, "mass": shares, "about": path.name, "unit": "place"}
    try:
        return read_architecture(profile.name).architecture, None, curve
    except PosbiasError:
        return None, None, curve


def _of_measurement(found: "xr.Dataset", file: Path) -> Begin:
    from posbias.comparison.predictors import measured_mixing
    from posbias.profiles.profile import measured_influence

    about = {name: found.attrs[name] for name in ("model", "positional", "heads") if name in found.attrs}
    return _of_curve(file, measured_influence(found).mass.tolist(), measured_mixing(found).tolist(), about)


def _of_curve(file: Path, mass: list[Any], mixing: list[Any], about: dict[str, Any]) -> Begin:
    """A measured model's curve, and its architecture by its name with the λ that was measured.

    Of another model depth and λ are known, and the rest is said to need measurement.
    """
    from dataclasses import replace

    from posbias.theory.architecture import Architecture, Layer
    from posbias.theory.configs import read_architecture
    from posbias.theory.mixing import MeasuredMixing
    from posbias.theory.positional import NeedsMeasurement, NoPE

    model = str(about.get("model", file.stem))
    curve = {"key": "yours", "title": f"{model}: {file.name}", "mass": mass, "about": file.name}
    measured = MeasuredMixing(tuple(mixing), tokens=len(mass), source=model)
    try:
        architecture = replace(read_architecture(model).architecture, mixing=measured)
    except PosbiasError:
        positional = str(about.get("positional", "")) or "its encoding"
        encoding = NoPE() if positional == "none" else NeedsMeasurement(positional)
        layer = Layer(heads=int(about.get("heads", 1)), positional=encoding)
        architecture = Architecture(len(mixing), (layer,), measured, model)
    return architecture, len(mass), curve
