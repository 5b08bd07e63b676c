"""A retrieval as an answer: its pictures in a folder, its JSON, and its curves as lines of text."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.core.errors import shortened
from posbias.core.progress import one_line
from posbias.core.terminal import table
from posbias.profiles.estimate import share_text
from posbias.profiles.place_differences import CurveDifference, by_size, ways_differences
from posbias.profiles.places import ABSENT, ALONE, Key, Places
from posbias.reports import answers, plots

if TYPE_CHECKING:
    import xarray as xr

    from posbias.core.answers import Answer

PICTURES = ("retrieval.svg", "retrieval.png")
OPENED = {"accuracy": "written", "choice": "preferred", "margin": "margin"}
OPENED |= {"control_margin": "asked for another", "lift": "lift"}
"""Columns of a model that is opened."""


def of_opened(
    curve: Places, file: Path, folder: Path, measured: "xr.Dataset | None" = None
) -> "tuple[Answer, list[str]]":
    """The answer on a model that was opened and its lines; `measured` is drawn next to the curve.

    Raises `OutputFileError` if a picture cannot be written.
    """
    lines = [*curve_lines(curve), "", f"retrieval: {file}"]
    pictures = _draw(plots.retrieval_figure(curve, measured), folder)
    return answers.Retrieve.of(curve, file=file, pictures=pictures), lines


def of_asked(
    curves: Mapping[Key, Places], kept: Mapping[str, Path], place: Path
) -> "tuple[Answer, list[str]]":
    """The answer on who was only asked and its lines, pictures in `place`; `kept`: the answers of each way.

    Of several ways it says what each changes against the first. Raises `OutputFileError` if a picture cannot be
    written.
    """
    if len(kept) == 1:
        (file,), own = kept.values(), [*curves.values()]
        lines = [line for curve in own for line in (*curve_lines(curve), "")]
        return answers.RetrieveAnswers.of(**_asked(own, file, place)), [*lines, f"answers: {file}"]
    found, ways = ways_differences(curves), []
    sizes = by_size(curves.values())
    for name, file in kept.items():
        own = [curve for curve in curves.values() if curve.asked.get("way") == name]
        ways.append(answers.Way.of(name=name, folder=file.parent, **_asked(own, file, file.parent)))
    of = answers.CurveDifference.of
    differences = [[of(one, answer=one.sentences()) for one in ones] for ones in found]
    pictures = _draw(plots.ways_figure(sizes), place)
    answer = answers.RetrieveWays.of(pictures=pictures, ways=ways, differences=differences)
    tables = [line for size, ones in zip(sizes, found, strict=True) for line in _ways_lines(size, ones)]
    messages = [f"{way.name}: {shortened(way.asked.system)}" for way in ways if way.asked.system is not None]
    return answer, [*tables, *messages, f"answers: {place}"]


def _asked(curves: list[Places], file: Path, place: Path) -> dict[str, Any]:
    """The parts of an answer on one way to ask."""
    asked = {name: held for name, held in curves[0].asked.items() if name != "way"}
    pictures, parts = _draw(plots.answers_figure(curves), place), list(map(answers.AnswerCurve.of, curves))
    return {"file": file, "pictures": pictures, "asked": asked, "curves": parts}


def _draw(figure: Any, folder: Path) -> list[Path]:
    return [plots.save_figure(figure, folder / name) for name in PICTURES]


def curve_lines(curve: Places) -> list[str]:
    """A curve as a table and in words."""
    opened, rows = "margin" in curve.results, []
    names = {"accuracy": "kept" if curve.kind else "found"}
    names |= {"all_found": "all found"} if curve.several else {}
    names = OPENED if opened else names
    for k, depth in enumerate(curve.depth):
        numbers = {name: curve.curves[name][k] for name in names}
        token = [f"{curve.results['token'][:, k].mean():.0f}"] if "token" in curve.results else []
        shares = ("accuracy", "choice", "all_found")
        shown = [share_text(one) if name in shares else str(one) for name, one in numbers.items()]
        rows.append([str(k), f"{depth:.2f}", *token, *shown])
    head = ["position", "place", *["token"] * ("token" in curve.results), *names.values()]
    said = [one_line(sentence, None) for sentence in curve.sentences()]
    return [*table(head, rows), "", _size_of(curve), *said]


def _ways_lines(curves: Mapping[str, Places], found: list[CurveDifference]) -> list[str]:
    """A table with a row for each way, and what they change in words."""
    first = next(iter(curves.values()))
    head = ["asked as", *(f"{depth:.2f}" for depth in first.depth), "found without, alone", "verdict"]
    rows = []
    for way, curve in curves.items():
        arms = ", ".join(f"{curve.overall[arm].value:.2f}" for arm in (ABSENT, ALONE))
        open_ = [end for end, said in curve.ends.items() if said == "inconclusive"]
        doubt = f"; {open_[0]} inconclusive" if curve.verdict in ("primacy", "recency") and open_ else ""
        rows.append([way, *map(share_text, curve.curves["accuracy"]), arms, f"{curve.verdict}{doubt}"])
    said = [one_line(sentence, None) for one in found for sentence in one.sentences()]
    return [*table(head, rows), "", _size_of(first), *said, ""]


def _size_of(curve: Places) -> str:
    if curve.unit == "tokens":
        about = f"{curve.prompts} prompts of about {curve.tokens:.0f} tokens"
        return f"{about}; chance {curve.chance:.2f}; others in nats"
    size = curve.job["pairs"] or curve.job["length"]
    what = " ".join(filter(None, (curve.job["task"], curve.kind, str(size or ""))))
    return f"{what}: {curve.prompts} trials of about {curve.length:.0f} words"
