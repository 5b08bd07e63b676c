"""How the sink taken out is judged: bounds by intervals, comparisons by Holm, and what fails is told."""

import re
from typing import Any

import numpy as np
import pytest
from project import ROOT

from posbias_papers.extensions.sink_removal import (
    BOUNDS,
    LESS,
    PLACE,
    RANK,
    Expected,
    cells,
    decided,
    verdicts,
)
from posbias_papers.extensions.sink_trials import KEPT_OUT, MASKED, STRONGEST


def cell(**changed):
    """A cell in which all that was expected holds; `changed` by the last words of a path."""
    made: dict[str, Any] = {"given": [0.1, 0.2, 0.3]}

    def put(path, told):
        inner: Any = made
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = changed.get("_".join(path[-2:]), told)

    for one in BOUNDS:
        put(one.path, [0.95, 0.01, 31.0] if one.least == 0.9 else [0.001, 0.001, 31.0])
    for one in LESS:
        put(one.path, [0.3 if one.more else -0.3, 0.01, 31.0])
    return made


def test_bounds_are_held_by_intervals():
    bound = Expected("loss", ("loss", KEPT_OUT), most=0.1)
    for value, side in ((0.05, "holds"), (0.095, "open"), (0.105, "open"), (0.2, "fails")):
        assert bound.side({"loss": {KEPT_OUT: [value, 0.01, 31.0]}}) == side
    both = Expected("rollouts", ("loss", KEPT_OUT), most=0.02, least=-0.02)
    for value, side in ((0.0, "holds"), (-0.019, "open"), (-0.05, "fails")):
        assert both.side({"loss": {KEPT_OUT: [value, 0.002, 31.0]}}) == side


def test_all_holds_where_all_was_as_expected():
    assert verdicts([cell(), cell()]) == dict.fromkeys(("given", "loss", "influence", "rollouts"), True)


@pytest.mark.parametrize("place", range(len(BOUNDS) + len(LESS)))
def test_one_that_does_not_hold_takes_its_question_with_it(place):
    one = [*BOUNDS, *LESS][place]
    if isinstance(one, Expected):
        value = one.least - 1 if np.isfinite(one.least) else one.most + 1
    else:
        value = -1.0 if one.more else 1.0
    wrong = cell()
    inner: Any = wrong
    for name in one.path[:-1]:
        inner = inner[name]
    inner[one.path[-1]] = [value, 0.01, 31.0]
    assert [question for question, held in verdicts([cell(), wrong]).items() if not held] == [one.question]
    assert verdicts([cell() | {"given": [0.2, 0.3, 0.4]}])["given"] is False


def test_comparisons_are_corrected_over_all_of_a_question():
    """A p-value of .03 passes alone, and not beside one of .5."""
    path = next(one for one in LESS if one.question == "loss").path
    weak = cell(**{"_".join(path): [-0.0227, 0.01, 31.0]})
    assert decided([weak])[LESS[0], 0] == "holds"
    other = ("loss_differences", f"{KEPT_OUT} - {STRONGEST}")
    weaker = cell(**{"_".join(path): [-0.0227, 0.01, 31.0], "_".join(other): [-0.001, 0.01, 31.0]})
    assert path == ("loss_differences", f"{KEPT_OUT} - {MASKED}")
    assert decided([weaker])[LESS[0], 0] == "open"


def test_the_page_has_the_numbers_on_record():
    page = (ROOT / "docs" / "predictors.md").read_text(encoding="utf-8")
    (cell,) = cells()
    for way in ("kept out", "masked", "early", "strongest"):
        row = next(line for line in page.splitlines() if line.startswith(f"| {way} |") and "±" in line)
        told = re.findall(r"[\d.]+(?= ±)", row)
        found = [cell["loss"][way], cell["influence"][way][RANK], cell["influence"][way][PLACE]]
        found += [cell["first"][way]] if way != "masked" else []
        for text, (value, *_) in zip(told, found, strict=True):
            assert abs(float(text) - value) <= 0.501 * 10.0 ** -len(text.partition(".")[2])
