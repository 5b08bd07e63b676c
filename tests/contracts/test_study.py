"""A study as a value, its records and its claims: what verbs find, what is kept, computed again and judged."""

import copy
import functools
import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

import posbias
from posbias.core.errors import InvalidValueError
from posbias.core.formats import dump_json
from posbias.core.spec import encode
from posbias.core.store import perform_cell
from posbias.core.sweeps import expand
from posbias.simulation.model import RecencyModel
from posbias.study import StatedClaim, judge
from posbias.study.quantities import estimates_of, quantity
from posbias.study.running import Outcome
from posbias.study.value import Cell, study_of
from posbias.study.verbs import Simulate, class_of, decode_verb

QUESTION = "Does the recency bias vanish with the dimension?"


def small(**changes):
    """A study of three dimensions and two seeds, 200 samples each."""
    data = {
        "question": QUESTION,
        "seeds": [0, 1],
        "base": {"kind": "simulate", "samples": 200, "model": {"depth": 2}},
        "sweep": {"model.dimension": [16, 64, 256]},
    }
    return study_of(data | changes)


def test_a_fingerprint_stays_what_it_was_whatever_the_order_of_keys_and_defaults_given():
    """Another one here means that finished studies would be computed again."""
    first = small().all_cells[0]
    assert (first.fingerprint, first.name) == ("2f7cd0eba31b7c36", "simulate-dimension16-seed0")
    base = {"model": {"depth": 2, "dimension": 16}, "samples": 200, "kind": "simulate"}
    turned = {"kind": "simulate", "samples": 200, "model": {"dimension": 16, "depth": 2}}
    whole = encode(Simulate(RecencyModel(dimension=16, depth=2), 200))
    for one in (base, turned, whole):
        assert study_of({"question": QUESTION, "base": one}).all_cells[0].fingerprint == first.fingerprint


def test_claims_select_by_what_was_chosen_and_by_what_the_spec_holds():
    made = small(sweep={"model.dimension": [16, 64], "model.residual": [True, False]})

    def pairs(**keys):
        return StatedClaim("c", "recency_probability.1", above=0.5, **keys).pairs(made.combinations)

    assert pairs() == [(number, None) for number in range(4)]
    assert pairs(of={"model.dimension": 64}) == [(2, None), (3, None)]
    assert pairs(of={"model": {"dimension": 64, "residual": False}}) == [(3, None)]
    assert pairs(of={"model.depth": 2, "samples": 200.0}) == [(number, None) for number in range(4)]
    assert pairs(of={"model.dimension": 16}, than={"model.dimension": 64}) == [(0, 2), (1, 3)]
    assert pairs(of={"model.residual": True}, than={"model.residual": False}) == [(0, 1), (2, 3)]
    assert pairs(than={"model.dimension": 64, "model.residual": True}) == [(0, 2), (1, 2), (3, 2)]
    with pytest.raises(InvalidValueError, match="one of True, False"):
        pairs(of={"model.residual": 1})


PATHS = st.sampled_from(["a", "b.c", "b.d", "other.e", "f.g.h"])
VALUES = st.lists(st.integers(0, 9) | st.text("xyz", max_size=2) | st.just({"k": 1}), min_size=1, max_size=3)


@given(st.dictionaries(PATHS, VALUES, max_size=3))
def test_a_sweep_is_nested_loops_the_last_axis_innermost(axes):
    base = {"other": {"kept": [1, 2]}}
    before, expected = copy.deepcopy(base), []
    for values in itertools.product(*axes.values()):
        changed = copy.deepcopy(base)
        for path, one in zip(axes, values, strict=True):
            *tables, key = path.split(".")
            functools.reduce(lambda place, name: place.setdefault(name, {}), tables, changed)[key] = one
        expected.append((dict(zip(axes, values, strict=True)), changed))
    assert expand(base, axes) == expected
    assert base == before


def outcome(numbers, seeds=(0, 1, 2, 3), **changes):
    """Records of two dimensions, made up: `numbers` by dimension and seed are the second layer's probability."""
    study = small(seeds=list(seeds), sweep={"model.dimension": [16, 64]}, **changes)
    records = []
    for cell in study.all_cells:
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


SEEDS = st.lists(st.floats(0.3, 0.7), min_size=4, max_size=4)


@given(SEEDS, SEEDS, st.booleans(), st.floats(0.3, 0.7), st.sampled_from(["above", "below"]))
def test_over_seeds_it_is_students_test_of_numbers_or_of_their_differences_seed_by_seed(
    values, others, paired, bound, kind
):
    numbers, keys = {16: by_seed(values), 64: by_seed(others)}, {kind: bound}
    if paired:
        values, bound = np.subtract(values, others), bound - 0.5
        keys = {kind: bound, "than": {"model.dimension": 64}}
    assume(np.std(values) >= 1e-9)
    (judged,) = judge(outcome(numbers, claims=claim(**keys)))
    above, below = (
        stats.ttest_1samp(values, bound, alternative=side).pvalue < 0.05 for side in ("greater", "less")
    )
    holds, fails = (above, below) if kind == "above" else (below, above)
    assert judged.verdict == ("holds" if holds else "fails" if fails else "undecided")
    assert judged.estimate.value == pytest.approx(np.mean(values), abs=1e-12)
    assert judged.as_dict()["se"] == pytest.approx(np.std(values, ddof=1) / 2)


@pytest.mark.parametrize(
    ("number", "keys", "verdict"),
    [
        ((0.55, 0.01, 100), {"above": 0.5}, "holds"),
        ((0.51, 0.01, 100), {"above": 0.5}, "undecided"),
        ((0.45, 0.01, 100), {"above": 0.5}, "fails"),
        ((0.52, 0.01, 2), {"above": 0.5}, "undecided"),
        ((0.45, 0.01, 100), {"below": 0.5}, "holds"),
        ((0.55, math.nan, 1), {"above": 0.5}, "undecided"),
        ((math.nan, math.nan, 100), {"above": 0.5}, "undecided"),
        ((0.6382, 0.0001, 100), {"equals": 0.638, "tolerance": 0.0005}, "holds"),
        ((0.6382, 0.0003, 100), {"equals": 0.638, "tolerance": 0.0005}, "undecided"),
        ((0.6392, 0.0001, 100), {"equals": 0.638, "tolerance": 0.0005}, "fails"),
        ((0.5, None, None), {"above": 0.5}, "fails"),
        ((0.5, None, None), {"equals": 0.5}, "holds"),
        ((0.6, None, None), {"equals": 0.5, "tolerance": 0.1}, "holds"),
        ((0.61, None, None), {"equals": 0.5, "tolerance": 0.1}, "fails"),
    ],
)
def test_one_seed_has_the_cells_own_error_and_exact_numbers_hold_or_fail(number, keys, verdict):
    (judged,) = judge(outcome({16: {0: number}}, seeds=(0,), claims=claim(**keys)))
    assert judged.verdict == verdict


def test_a_claim_about_several_cells_holds_if_all_do():
    for other, verdict in (((0.55, 0.01, 100), "holds"), ((0.45, 0.01, 100), "fails"), (None, "undecided")):
        numbers = {16: {0: (0.6, 0.01, 100)}, 64: {0: other}}
        (judged,) = judge(outcome(numbers, seeds=(0,), claims=claim(of={}, above=0.5)))
        assert judged.verdict == verdict


def test_seeds_that_agree_by_chance_are_no_surer_than_their_own_errors():
    values = [0.501, 0.501, 0.501 + 1e-9, 0.501]
    for se, verdict in ((0.01, "undecided"), (1e-6, "holds")):
        (judged,) = judge(outcome({16: by_seed(values, se=se)}, claims=claim(above=0.5)))
        assert (judged.estimate.se, judged.verdict) == (pytest.approx(se / 2), verdict)


def test_one_exact_counterexample_among_the_seeds_refutes():
    numbers = {16: {0: (1.0, None, 0), 1: (1.0, None, 0), 2: (0.0, None, 0), 3: (1.0, None, 0)}}
    (judged,) = judge(outcome(numbers, claims=claim(equals=1.0)))
    assert judged.verdict == "fails"
    assert judged.estimate.value == 0.0


SPECS = {
    "predict": {"architecture": {"depth": 3, "mixing": {"kind": "constant", "value": 0.2}}, "tokens": 40},
    "simulate": {"model": {"depth": 2, "tokens": 5}, "samples": 300},
    "train": {"task": {"items": 4, "dimension": 16, "classes": 64, "labels": 4, "burstiness": 2},
              "network": {"depth": 1}, "iterations": 20, "batch": 8, "sequences": 40},
    "measure": {"model": "tiny-alibi", "prompts": 4, "tokens": 32},
    "verify": {"statement": "wu-4.1", "instances": 6},
}  # fmt: skip


@pytest.mark.parametrize("kind", SPECS)
def test_a_verb_finds_what_it_promises_and_the_same_again(kind):
    spec, heard = {"kind": kind, **SPECS[kind]}, []
    found, cost, versions = perform_cell(Cell(decode_verb(spec), 3, {}), heard.append)
    promised, quantities = decode_verb(spec).quantities, found["quantities"]
    assert {*promised} == quantities.keys() >= {*class_of({"kind": kind}).main}
    for name, one in quantities.items():
        assert one.keys() == {"value", "se", "n"}
        numbers = estimates_of(one)
        assert all(number.exact == (one["n"] is None) for number in numbers)
        assert kind == "verify" or all(math.isfinite(number.value) for number in numbers) or "uniform" in name
    assert versions.keys() == {"python", "posbias", "numpy", *class_of({"kind": kind}).packages}
    assert cost["peak_memory"] > 1e7
    assert json.loads(dump_json(found)) == found
    assert not heard or heard[-1].done == heard[-1].total
    if kind in ("simulate", "train"):
        assert perform_cell(Cell(decode_verb(spec), 3, {}), None)[0] == found


def test_a_prediction_of_a_study_is_the_rollout():
    found, *_ = perform_cell(Cell(decode_verb({"kind": "predict", **SPECS["predict"]}), 0, {}), None)
    profile = posbias.influence(posbias.Architecture(3, mixing=posbias.ConstantMixing(0.2)), 40)
    np.testing.assert_array_equal(found["quantities"]["profile"]["value"], profile.mass)
    assert found["quantities"]["trough"] == {"value": profile.summary.trough, "se": None, "n": None}
