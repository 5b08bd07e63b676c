"""Influence by place against retrieval by place: correlations and their chance against plain computation."""

import itertools

import numpy as np
import pytest
import scipy.stats

from posbias import measure
from posbias.measurement import load_model
from posbias.retrieval import retrieval_job, retrieve
from posbias_papers.extensions.behaviour import (
    EXTENSION,
    NAMES,
    QUANTITIES,
    BehaviourCell,
    adjusted,
    at_places,
    behaviour_trial,
    correlation,
    decides,
)


def test_a_place_has_the_mean_of_its_tokens():
    mass = np.arange(12.0)
    assert at_places(mass, np.array([2, 5, 8])).tolist() == [3.0, 6.0, 9.0]
    assert at_places(mass, np.array([2, 5, 10])).tolist() == [3.0, 7.0, 10.5]


def test_correlation_is_scipys_and_its_chance_that_of_all_permutations():
    random = np.random.default_rng(1)
    influence = np.array([0.1, 0.3, 0.2, 0.6, 0.5])
    by_trial = influence + random.normal(0, 0.3, (80, 5))
    value, low, high, p = correlation(influence, by_trial, seed=2)
    curve = by_trial.mean(axis=0)
    assert value == pytest.approx(scipy.stats.spearmanr(influence, curve).statistic, abs=1e-5)
    mixed = [scipy.stats.spearmanr(one, curve).statistic for one in itertools.permutations(influence)]
    # 1,000 of 120 permutations: four standard errors of a share are .063 at most
    assert p == pytest.approx(np.mean(np.array(mixed) >= value - 1e-9), abs=0.063)
    assert low <= value <= high


def test_a_constant_side_has_no_correlation():
    assert correlation(np.array([0.1, 0.3, 0.2]), np.zeros((4, 3)), seed=0) is None


def test_a_cell_says_whether_the_model_can_do_it_and_correlates_every_prediction():
    job = retrieval_job("keys", pairs=5, positions=5, prompts=4, seed=1)
    asked = retrieve("tiny-nope", job)
    length = round(float(asked["tokens"].mean()))
    found = behaviour_trial(asked, measure("tiny-nope", tokens=length, prompts=4, seed=1))
    assert found["able"] is False
    assert (found["places"], found["trials"], found["length"]) == (5, 4, length)
    np.testing.assert_allclose(found["by_place"]["margin"], asked["margin"].values.mean(axis=0), rtol=1e-4)
    lift = (asked["margin_mean"] - asked["control_margin_mean"]).values
    np.testing.assert_allclose(found["by_place"]["lift"], lift.mean(axis=0), rtol=1e-4)
    assert [*found["correlations"]] == [*found["influence"]]
    assert all([*one] == [*QUANTITIES] for one in found["correlations"].values())


def test_cells_that_cannot_tell_decide_nothing_and_the_rest_is_corrected_together():
    def cell(number, able, places, p):
        found = None if p is None else [0.5, 0.1, 0.9, p]
        key = BehaviourCell(f"model {number}", "json", places)
        return key, {"able": able, "correlations": {"energy": {"lift": found}}}

    among = [cell(0, True, 10, 0.02), cell(1, False, 10, 0.001), cell(2, True, 5, 0.001)]
    among += [cell(3, True, 20, 0.04), cell(4, True, 20, None)]
    corrected = adjusted("energy", "lift", dict(among))
    assert corrected == pytest.approx({among[0][0]: 0.04, among[3][0]: 0.04})
    assert not decides({"refused": "too long"}, 20)


def test_the_records_are_of_the_models_that_come_along_and_are_shown_whole():
    found = EXTENSION.recorded()
    assert [*found] == [*EXTENSION.cells]
    sums = {(cell.model, one["checksum"]) for cell, one in found.items()}
    assert sums == {(name, load_model(name).checksum) for name, _ in sums}
    assert [len(one.rows) for one in EXTENSION.tables(found)] == [len(NAMES), *[len(found)] * 4]
