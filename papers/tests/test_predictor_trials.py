"""The fair test of predictors: what a cell finds against plain computation, Holm's correction, the sides taken."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from posbias import measure
from posbias.comparison.predictors import LABELS, PREDICTORS, chain, half, predictions, shares
from posbias.core.errors import InvalidValueError
from posbias.profiles.claims import LEVEL
from posbias.profiles.profile import measured_influence
from posbias_papers.extensions.predictors import (
    EXTENSION,
    PAIRS,
    PredictorCell,
    dropped,
    holm,
    predicted,
    sides,
    trial,
    weighed,
)

TOKENS, PROMPTS = 24, 12


@pytest.fixture(scope="module")
def measured():
    return measure("tiny-alibi", tokens=TOKENS, prompts=PROMPTS, seed=3)


@pytest.fixture(scope="module")
def found(measured):
    return trial(measured)


def plain(measured, predict) -> np.ndarray:
    """Spearman and Wasserstein of a prediction, made on one half and judged on the other, by SciPy."""
    scores = []
    place = np.arange(TOKENS) / (TOKENS - 1)
    for even in (True, False):
        mass = predict(half(measured, even))
        rest = half(measured, not even)["influence"].values.mean(axis=0)
        rest = rest / rest.sum()
        rank = scipy.stats.spearmanr(mass, rest).statistic
        scores.append([rank, scipy.stats.wasserstein_distance(place, place, mass, rest)])
    return np.mean(scores, axis=0)


@pytest.mark.parametrize("key", [one.key for one in PREDICTORS])
def test_scores_are_those_of_the_other_half(measured, found, key):
    rank, place = plain(measured, lambda part: predictions(part)[key].mass)
    assert found["scores"][key]["spearman"][0] == pytest.approx(rank, abs=1e-5)
    assert found["scores"][key]["wasserstein"][0] == pytest.approx(place, abs=1e-5)


def test_each_difference_is_the_first_less_the_second(found):
    for more, less in PAIRS:
        difference = found["differences"][f"{more} - {less}"]
        for score in ("spearman", "wasserstein", "wasserstein_without_first"):
            one, other = (found["scores"][name][score] for name in (more, less))
            if one is None or other is None:
                assert difference[score] is None
            else:
                assert difference[score][0] == pytest.approx(one[0] - other[0], rel=5e-5, abs=3e-5)
                assert difference[score][1] >= 0.0


def test_a_dropped_column_has_what_position_1_has(measured):
    for key in ("fitted", "measured_kernels"):
        mass, whole = dropped(measured, key).mass, predictions(measured)[key].mass
        assert mass[0] == mass[1]
        np.testing.assert_allclose(mass[1:] / mass[1], whole[1:] / whole[1], rtol=1e-12)


def test_a_weighed_rollout_is_the_product_of_its_matrices(measured):
    row = np.eye(TOKENS)[-1]
    for kernel, update, stream in zip(
        measured["kernel"].values[::-1],
        measured["update_norm"].values[::-1],
        measured["residual_norm"].values[::-1],
        strict=True,
    ):
        row = row @ (np.eye(TOKENS) + update[:, None] * kernel / stream[None, :])
    norms = {name: measured[name].values for name in ("update_norm", "residual_norm")}
    np.testing.assert_allclose(
        weighed(measured, "measured_kernels", **norms).mass, row / row.sum(), rtol=1e-10
    )


def test_too_few_prompts_are_refused():
    few = measure("tiny-nope", tokens=8, prompts=2)
    with pytest.raises(InvalidValueError, match="2 prompts given, two in each half needed"):
        trial(few)


def test_parts_go_from_even_to_measured(measured):
    steps = {name: one.mass for name, one in chain(measured).items()}
    assert [*steps] == ["even", *LABELS]
    np.testing.assert_allclose(steps["measured"], measured_influence(measured).mass, rtol=1e-4)
    even = np.tril(np.ones((TOKENS, TOKENS)))
    even /= even.sum(axis=1, keepdims=True)
    depth = measured.sizes["layer"]
    np.testing.assert_allclose(steps["mask"], np.linalg.matrix_power(even, depth)[-1], rtol=1e-4)
    layers = [np.eye(TOKENS) * (1 - lam) + lam * even for lam in measured["mixing"].values.mean(axis=0)]
    np.testing.assert_allclose(steps["residual"], np.linalg.multi_dot(layers[::-1])[-1], rtol=1e-4)
    for row in shares(steps).values():
        assert sum(np.diff(row)) == pytest.approx(row[-1] - row[0])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_rejects_step_by_step(p_values):
    adjusted = holm(p_values)
    order = np.argsort(p_values, kind="stable")
    rejecting = True
    for step, place in enumerate(order):
        rejecting &= p_values[place] * (len(p_values) - step) < LEVEL
        assert (adjusted[place] < LEVEL) == rejecting
    assert all(one >= p for one, p in zip(adjusted, p_values, strict=True))
    assert max(adjusted) <= 1.0


def results(*cells: tuple[str, float, float, float]) -> dict[PredictorCell, dict]:
    """Cells: model, how much better than recency energy is by rank and by place, noise ceiling."""
    return {
        PredictorCell(model, "made", number): {
            "noise": {"noiseless": {"spearman": [ceiling, 0.0, 1.0]}},
            "differences": {
                "energy - recency": {"spearman": [rank, 0.01, 30.0], "wasserstein": [place, 0.01, 30.0]}
            },
        }
        for number, (model, rank, place, ceiling) in enumerate(cells)
    }


def test_sides_need_surety_after_the_correction():
    made = results(
        ("a", 0.2, -0.2, 0.9), ("a", 0.02, 0.2, 0.9), ("b", -0.2, -0.02, 0.9), ("b", 0.2, 0.0, 0.2)
    )
    assert [*sides("energy", "recency", "spearman", made).values()] == ["win", "open", "loss"]
    assert [*sides("energy", "recency", "wasserstein", made).values()] == ["win", "loss", "open", "open"]


def test_a_model_is_predicted_where_three_quarters_are_won_and_none_lost():
    won, even, lost = ("a", 0.2, -0.2, 0.9), ("a", 0.0, 0.0, 0.9), ("a", 0.2, 0.2, 0.9)
    assert predicted("energy", results(won, won, won, even)) == {"a": True}
    assert predicted("energy", results(won, won, even, even)) == {"a": False}
    assert predicted("energy", results(won, won, won, lost)) == {"a": False}
    assert predicted("energy", results(won, won, won, ("b", 0.2, 0.2, 0.9))) == {"a": True, "b": False}


def test_no_predictor_predicts_every_model_on_record():
    found = EXTENSION.recorded()
    assert [*found] == [*EXTENSION.cells]
    predicts = {one.key: predicted(one.key, found) for one in PREDICTORS}
    assert [model for model, does in predicts["energy"].items() if does] == ["tiny-rope"]
    assert [model for model, does in predicts["fitted"].items() if does] == ["tiny-window"]
    assert not any(all(one.values()) for one in predicts.values())
