"""Claims are judged by the seeds where there are two, by the cell's own error where there is one, else exactly."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from study_values import small

from posbias.core.errors import InvalidValueError
from posbias.profiles.estimate import Estimate
from posbias.study import judge, status
from posbias.study.running import Outcome
from posbias.study.tables import columns, csv_text, lines, rows, summary
from posbias.study.verbs import check_place, estimate_at, estimates_of, quantity


def outcome(numbers, seeds=(0, 1, 2, 3), **changes):
    """Records of two dimensions, made up: `numbers` by dimension and seed are the second layer's probability."""
    study = small(seeds=list(seeds), sweep={"model.dimension": [16, 64]}, **changes)
    records = []
    for cell in study.cells():
        given = numbers.get(cell.chosen["model.dimension"], {}).get(cell.seed)
        if given is None:
            records.append(None)
            continue
        value, se, n = given
        made = {"value": [0.5, value], "se": None if se is None else [0.0, se], "n": n}
        quantities = {"recency_probability": made, "least_step": quantity(math.nan, math.nan, 5)}
        records.append(SimpleNamespace(result={"quantities": quantities}))
    return Outcome(study, "nowhere", tuple(records))


def claim(**keys):
    return [{"claim": "It is so", "quantity": "recency_probability.1", "of": {"model.dimension": 16}} | keys]


def by_seed(values, se=1e-9, n=100):
    return dict(enumerate((value, se, n) for value in values))


seeds_of = st.lists(st.floats(0.3, 0.7), min_size=4, max_size=4)


@given(seeds_of, st.floats(0.3, 0.7), st.sampled_from(["above", "below"]))
def test_over_seeds_it_is_students_test(values, bound, kind):
    assume(np.std(values) >= 1e-9)
    (judged,) = judge(outcome({16: by_seed(values)}, claims=claim(**{kind: bound})))
    side = "greater" if kind == "above" else "less"
    holds = stats.ttest_1samp(values, bound, alternative=side).pvalue < 0.05
    fails = (
        stats.ttest_1samp(values, bound, alternative={"greater": "less", "less": "greater"}[side]).pvalue
        < 0.05
    )
    assert judged.verdict == ("holds" if holds else "fails" if fails else "undecided")
    assert judged.estimate.value == pytest.approx(np.mean(values))
    assert judged.as_dict()["se"] == pytest.approx(np.std(values, ddof=1) / 2)


@given(seeds_of, seeds_of)
def test_a_difference_is_taken_seed_by_seed(more, less):
    difference = np.subtract(more, less)
    assume(np.std(difference) >= 1e-9)
    numbers = {16: by_seed(more), 64: by_seed(less)}
    (judged,) = judge(outcome(numbers, claims=claim(than={"model.dimension": 64}, above=0.0)))
    assert judged.estimate.value == pytest.approx(difference.mean(), abs=1e-12)
    holds = stats.ttest_rel(more, less, alternative="greater").pvalue < 0.05
    assert (judged.verdict == "holds") == holds


@pytest.mark.parametrize(
    ("number", "keys", "verdict"),
    [
        ((0.55, 0.01, 100), {"above": 0.5}, "holds"),
        ((0.51, 0.01, 100), {"above": 0.5}, "undecided"),
        ((0.45, 0.01, 100), {"above": 0.5}, "fails"),
        ((0.501, 0.0001, 100), {"above": 0.5}, "holds"),
        ((0.5001, 0.0001, 100), {"above": 0.5}, "undecided"),
        ((0.52, 0.01, 2), {"above": 0.5}, "undecided"),
        ((0.52, 0.01, 100), {"above": 0.5}, "holds"),
        ((0.45, 0.01, 100), {"below": 0.5}, "holds"),
        ((0.55, 0.01, 100), {"below": 0.5}, "fails"),
        ((0.55, math.nan, 1), {"above": 0.5}, "undecided"),
        ((math.nan, math.nan, 100), {"above": 0.5}, "undecided"),
        ((0.6382, 0.0001, 100), {"equals": 0.638, "tolerance": 0.0005}, "holds"),
        ((0.6382, 0.0003, 100), {"equals": 0.638, "tolerance": 0.0005}, "undecided"),
        ((0.6392, 0.0001, 100), {"equals": 0.638, "tolerance": 0.0005}, "fails"),
        ((0.6368, 0.0001, 100), {"equals": 0.638, "tolerance": 0.0005}, "fails"),
        ((0.5, None, None), {"above": 0.5}, "fails"),
        ((0.500001, None, None), {"above": 0.5}, "holds"),
        ((0.5, None, None), {"below": 0.5}, "fails"),
        ((0.5, None, None), {"equals": 0.5}, "holds"),
        ((0.6, None, None), {"equals": 0.5, "tolerance": 0.1}, "holds"),
        ((0.61, None, None), {"equals": 0.5, "tolerance": 0.1}, "fails"),
    ],
)
def test_one_seed_has_the_cells_own_error_and_exact_numbers_hold_or_fail(number, keys, verdict):
    (judged,) = judge(outcome({16: {0: number}}, seeds=(0,), claims=claim(**keys)))
    assert judged.verdict == verdict
    assert str(judged).startswith(f"{verdict}: It is so (")


def test_a_claim_about_several_cells_holds_if_all_do():
    held = {16: {0: (0.6, 0.01, 100)}, 64: {0: (0.55, 0.01, 100)}}
    (judged,) = judge(outcome(held, seeds=(0,), claims=claim(of={}, above=0.5)))
    assert judged.verdict == "holds"
    assert "2 of 2 hold; 0.550 ± 0.010 where model.dimension = 64, above 0.5 claimed" in judged.why
    broken = held | {64: {0: (0.45, 0.01, 100)}}
    (judged,) = judge(outcome(broken, seeds=(0,), claims=claim(of={}, above=0.5)))
    assert judged.verdict == "fails"
    assert "1 of 2 hold; 0.450 ± 0.010 where model.dimension = 64" in judged.why
    (judged,) = judge(outcome({16: held[16]}, seeds=(0,), claims=claim(of={}, above=0.5)))
    assert judged.verdict == "undecided"
    assert "model.dimension = 64: not finished" in judged.why


def test_seeds_that_agree_by_chance_are_no_surer_than_their_own_errors():
    values = [0.501, 0.501, 0.501 + 1e-9, 0.501]
    (judged,) = judge(outcome({16: by_seed(values, se=0.01)}, claims=claim(above=0.5)))
    assert judged.estimate.se == pytest.approx(0.005)
    assert judged.verdict == "undecided"
    (judged,) = judge(outcome({16: by_seed(values, se=1e-6)}, claims=claim(above=0.5)))
    assert judged.verdict == "holds"


def test_places_of_quantities():
    lengths = {"one": -1, "many": 3, "some": None}
    assert check_place(lengths, "one") == ("one", None)
    assert check_place(lengths, "many.-3") == ("many", -3)
    assert check_place(lengths, "some.900") == ("some", 900)
    for place in ("won", "one.0", "many", "many.3", "many.1.2"):
        with pytest.raises(InvalidValueError, match="quantity: expected"):
            check_place(lengths, place)
    given = {"many": quantity([1.0, math.inf], [0.5, math.nan], 4)}
    assert given["many"] == {"value": [1.0, None], "se": [0.5, None], "n": 4}
    assert estimate_at(given, "many.0") == Estimate(1.0, 0.5, 4)
    assert math.isnan(estimates_of(given["many"])[1].value)


def test_tables_hold_every_number_and_say_what_is_missing():
    found = outcome({16: by_seed([0.6, 0.62, 0.61], se=0.001), 64: by_seed([0.5])}, claims=claim(above=0.5))
    table = rows(found)
    assert len(table) == 4 * 3  # finished cells × (two layers, one step)
    assert table[1] == {
        "fingerprint": found.study.cells()[0].fingerprint, "kind": "simulate", "model.dimension": 16, "seed": 0,
        "quantity": "recency_probability", "index": 1, "value": 0.6, "se": 0.001, "n": 100,
    }  # fmt: skip
    assert table[2]["index"] is None
    assert table[2]["value"] is None
    head, *body = csv_text(found).splitlines()
    assert head == "fingerprint,kind,model.dimension,seed,quantity,index,value,se,n"
    assert body[1].endswith(",simulate,16,0,recency_probability,1,0.6,0.001,100")
    assert body[2].endswith(",least_step,,,,5")
    head, body = summary(found)
    assert head == ["model.dimension", "cells", "recency_probability.0", "recency_probability.1"]
    assert [row[:2] for row in body] == [["16", "3 of 4"], ["64", "1 of 4"]]
    assert body[0][3] == "0.6100 ± 0.0058"
    assert columns(found, ["least_step.1"]) == ["least_step.1"]
    with pytest.raises(InvalidValueError, match="did you mean 'least_step'"):
        columns(found, ["lest_step.1"])


def test_lines_are_over_the_first_axis_of_numbers():
    study = small(seeds=[0], sweep={"model.residual": [True, False], "model.dimension": [64, 16]})
    quantities = [{"recency_probability": quantity([0.5, one], [0.0, 0.01], 9)} for one in (1.0, 2.0, 3.0)]
    records = tuple(SimpleNamespace(result={"quantities": one}) for one in quantities)
    axis, found = lines(Outcome(study, "nowhere", (*records, None)), "recency_probability.1")
    assert axis == "model.dimension"
    assert [(line.label, line.x, line.value) for line in found] == [
        ("model.residual = True", (16.0, 64.0), (2.0, 1.0)),
        ("model.residual = False", (64.0,), (3.0,)),
    ]
    # nine samples: t has eight degrees of freedom
    assert [line.reach for line in found] == [pytest.approx((0.02306,) * n, abs=1e-6) for n in (2, 1)]
    with pytest.raises(InvalidValueError, match="axis of numbers"):
        lines(
            Outcome(small(sweep={"model.residual": [True]}), "nowhere", (None, None)), "recency_probability.1"
        )
    with pytest.raises(InvalidValueError, match="finished cell"):
        lines(Outcome(study, "nowhere", (None,) * 4), "recency_probability.1")


def test_one_exact_counterexample_among_the_seeds_refutes():
    numbers = {16: {0: (1.0, None, 0), 1: (1.0, None, 0), 2: (0.0, None, 0), 3: (1.0, None, 0)}}
    (judged,) = judge(outcome(numbers, claims=claim(equals=1.0)))
    assert judged.verdict == "fails"
    assert judged.estimate.value == 0.0
    assert "3 of 4 hold" in judged.why


def test_a_claim_about_what_is_not_finished_has_no_error_either(tmp_path):
    (judged,) = judge(status(small(claims=claim(above=0.5)), tmp_path))
    entry = judged.as_dict()
    assert entry["verdict"] == "undecided"
    assert entry["number"] is None
    assert entry["se"] is None
