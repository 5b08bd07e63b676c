"""`posbias explore`: the page on which one turns what the theory is about."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.cli.architectures import architecture_from
from posbias.cli.output import answer_with
from posbias.core.arguments import shortened
from posbias.core.errors import InputFileError, InvalidValueError, OtherKindError

if TYPE_CHECKING:
    import xarray as xr

log = logging.getLogger(__name__)
SMALL = 300_000
"""Bytes of a page up to which nothing is said of its size."""


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


def explore(given: str | None = None, *, options: Options = Options()) -> None:
    """Write a page on which depth, mask, encoding and λ are turned and the curve moves, and open it.

    Parameters
    ----------
    given
        What to begin from: an architecture (a file or a name, as for `posbias predict`), a measurement (its
        .nc, or the JSON of `posbias measure --json`) or a retrieval (its file or folder), whose curve is drawn
        beneath the prediction.
    """
    from posbias.core.files import write_text
    from posbias.reports.answers.predictions import Explore
    from posbias.reports.explore.page import page

    if options.out.suffix not in (".html", ".htm"):
        raise InvalidValueError(f"out: {shortened(str(options.out))} given, a file that ends in .html needed")
    shared.check_targets(options.out, None, given)
    architecture, tokens, curve = _begin(given)
    name = "" if given is None else Path(given).name
    written = write_text(
        options.out,
        page(
            architecture, tokens if options.tokens is None else options.tokens, name, [curve] if curve else []
        ),
    )
    opened = False
    if not options.no_open:
        import webbrowser

        opened = webbrowser.open(written.absolute().as_uri())
    answer = Explore.of(page=written, opened=opened, begins_from=given)
    line = f"page: {written}" + (
        "" if opened or options.no_open else " (no browser was found; open it in one)"
    )
    size = written.stat().st_size
    if size > SMALL:
        line += f"; {size / 1000:,.0f} kB, since each of its heads has a table of its own"
    answer_with(answer, lambda: [line], options.json)


def _begin(given: str | None) -> tuple[Any, int | None, dict[str, Any] | None]:
    """The architecture to begin from, its length, and the curve that was measured, as far as there are any."""
    if given is None:
        return None, None, None
    path = Path(given)
    if (retrieval := _retrieval_in(path)) is not None:
        return _of_retrieval(retrieval)
    if path.suffix == ".nc":
        from posbias.profiles.measurements import RETRIEVAL, load_measurement

        try:
            return _of_dataset(load_measurement(path, needs=("influence", "mixing")), path)
        except OtherKindError as error:
            if error.held != RETRIEVAL:
                raise
            return _of_retrieval(path)
    if path.suffix == ".json" and path.is_file() and (told := _measure_answer(path)):
        mass, mixing, about = told["influence"], told["mixing"], {"model": told["model"]}
    else:
        return *architecture_from(given), None
    return _of_curve(path, mass, mixing, about)


def _retrieval_in(path: Path) -> Path | None:
    """The file of a retrieval that a path is or holds. Raises `InputFileError` for a folder of nothing to show."""
    from posbias.core.input_files import read_mapping
    from posbias.imports import asked

    if path.is_dir() and not (path / "config.json").exists():
        if (held := asked.file_in(path)) is None:
            raise InputFileError(
                f"{path}: a folder with neither config.json nor retrieval.nc nor retrieval.json given; an "
                "architecture (file, folder or name), a measurement or a retrieval needed"
            )
        return held
    if path.suffix == ".json" and path.is_file() and asked.is_asked(read_mapping(path)):
        return path
    return None


def _of_retrieval(path: Path) -> tuple[Any, None, dict[str, Any]]:
    """The architecture of a model that was asked, where its name is known, and accuracy by place as shares."""
    from posbias.core.errors import PosbiasError
    from posbias.imports import read

    profile = read(path)
    if not profile.mass.any():
        raise InputFileError(f"{path}: accuracy 0 at every place given, one above 0 needed to be drawn")
    shares = (profile.mass / profile.mass.sum()).tolist()
    title = f"{profile.name}: {profile.measures} by place, as shares"
    curve = {"key": "yours", "title": title, "mass": shares, "about": path.name, "unit": "place"}
    try:
        return architecture_from(profile.name)[0], None, curve
    except PosbiasError:
        return None, None, curve


def write_beside(found: "xr.Dataset", file: Path, out: Path) -> Path | None:
    """The page that begins from a measurement, whose file is `file`; None for one that the page cannot show."""
    from posbias.core.files import write_text
    from posbias.reports.explore.page import page

    architecture, tokens, curve = _of_dataset(found, file)
    try:
        html = page(architecture, tokens, file.name, [curve])
    except InvalidValueError as error:
        log.info("no page to turn it on: %s", error)
        return None
    return write_text(out, html)


def _of_dataset(found: "xr.Dataset", file: Path) -> tuple[Any, int, dict[str, Any]]:
    """What `_begin` finds in a measurement."""
    from posbias.comparison.predictors import measured_mixing
    from posbias.profiles.influence import measured_influence

    mass, mixing = measured_influence(found).mass.tolist(), measured_mixing(found).tolist()
    about = {name: found.attrs[name] for name in ("model", "positional", "heads") if name in found.attrs}
    return _of_curve(file, mass, mixing, about)


def _of_curve(
    file: Path, mass: list[float], mixing: list[float], about: dict[str, Any]
) -> tuple[Any, int, dict[str, Any]]:
    """The architecture of a measured model, the length, and the curve."""
    model = str(about.get("model", file.stem))
    curve = {"key": "yours", "title": f"{model}: {file.name}", "mass": mass, "about": file.name}
    return _of_measurement(model, mixing, about, len(mass)), len(mass), curve


def _measure_answer(path: Path) -> dict[str, Any] | None:
    """What `posbias measure --json` printed; None of another file. Raises `InputFileError` for a broken one."""
    from posbias.core.input_files import read_mapping

    told = read_mapping(path)
    if not str(told.get("schema", "")).startswith("measure/"):
        return None
    for name, most in (("influence", float("inf")), ("mixing", 1.0)):
        numbers = told.get(name)
        right = isinstance(numbers, list) and numbers and all(
            isinstance(one, int | float) and not isinstance(one, bool) and 0 <= one <= most for one in numbers
        )  # fmt: skip
        if not right:
            raise InputFileError(f"{path}: {name}: {shortened(numbers)} given, a list of shares needed")
    return told | {"model": str(told.get("model", path.stem))}


def _of_measurement(model: str, mixing: list[float], about: dict[str, Any], tokens: int) -> Any:
    """The architecture of a measured model with the λ that was measured, by its name where that is known.

    Of another model depth and λ are known, and the rest is said to need measurement.
    """
    from dataclasses import replace

    from posbias.core.errors import PosbiasError
    from posbias.theory.architecture import Architecture, Layer
    from posbias.theory.mixing import MeasuredMixing
    from posbias.theory.positional import NeedsMeasurement, NoPE

    measured = MeasuredMixing(tuple(mixing), tokens=tokens, source=model)
    try:
        known = architecture_from(model)[0]
        return replace(known, mixing=measured)
    except PosbiasError:
        positional = str(about.get("positional", "")) or "its encoding"
        layer = Layer(
            heads=int(about.get("heads", 1)),
            positional=NoPE() if positional == "none" else NeedsMeasurement(positional),
        )
        return Architecture(len(mixing), (layer,), measured, model)
