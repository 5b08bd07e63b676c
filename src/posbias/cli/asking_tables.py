"""What `posbias retrieve` prints of a model that it only asked: curves as tables and in words."""

from typing import TYPE_CHECKING

from posbias.core.logs import one_line
from posbias.core.text_tables import table

if TYPE_CHECKING:
    from posbias.profiles.estimate import Estimate
    from posbias.retrieval.curve import RetrievalCurve
    from posbias.retrieval.factor import CurveDifference


def ways_lines(curves: "dict[str, RetrievalCurve]", found: "list[CurveDifference]") -> list[str]:
    """A table with a row for each way, and what they change in words."""
    from posbias.retrieval.trials import ABSENT, ALONE

    first = next(iter(curves.values()))
    head = ["asked as", *(f"{depth:.2f}" for depth in first.depth), "found without, alone", "verdict"]
    rows = [
        [
            way,
            *(_share(one) for one in curve.curves["accuracy"]),
            ", ".join(f"{curve.overall[arm].value:.2f}" for arm in (ABSENT, ALONE)),
            _verdict(curve),
        ]
        for way, curve in curves.items()
    ]
    said = [one_line(sentence, None) for one in found for sentence in one.sentences()]
    return [*table(head, rows), "", _size_of(first), *said, ""]


def _verdict(curve: "RetrievalCurve") -> str:
    """The verdict, and of one on one end whether the other is inconclusive."""
    open_ = [end for end, said in curve.ends.items() if said == "inconclusive"]
    doubt = f"; {open_[0]} inconclusive" if curve.verdict in ("primacy", "recency") and open_ else ""
    return f"{curve.verdict}{doubt}"


def curve_lines(curves: "list[RetrievalCurve]") -> list[str]:
    """Each curve as a table and in words."""
    lines = []
    for curve in curves:
        several = curve.answers is not None and curve.answers.several
        shown = {"found": "accuracy"} | ({"all found": "all_found"} if several else {})
        columns = {name: curve.curves[quantity] for name, quantity in shown.items()}
        rows = [
            [str(k), f"{depth:.2f}", *(_share(column[k]) for column in columns.values())]
            for k, depth in enumerate(curve.depth)
        ]
        lines += [*table(["position", "place", *columns], rows), "", _size_of(curve)]
        lines += [one_line(sentence, None) for sentence in curve.sentences()] + [""]
    return lines[:-1]


def _size_of(curve: "RetrievalCurve") -> str:
    size = curve.job["pairs"] or curve.job["length"]
    what = f"{curve.job['task']}{f' {size}' if size else ''}"
    assert curve.answers is not None
    return f"{what}: {curve.prompts} trials of about {curve.answers.words:.0f} words"


def _share(one: "Estimate") -> str:
    return f"{one.value:.2f} [{one.interval[0]:.2f}, {one.interval[1]:.2f}]"
