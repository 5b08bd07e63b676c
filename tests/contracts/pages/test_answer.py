"""The words follow from the numbers."""

import re

import numpy as np
import pytest

from posbias.comparison import Agreement, Comparison, Score, compare_all
from posbias.predictors import measured_influence, predictions
from posbias.profile import harmonic
from posbias.reports.answer import answer
from posbias.reports.evidence import Findings, shape
from posbias.reports.scores import MEASURES, SPEARMAN, WASSERSTEIN


def answered(measurement, seed=0):
    measured, predicted = measured_influence(measurement), predictions(measurement)
    comparison = compare_all(predicted, measured, seed=seed)
    return answer(Findings(measurement, measured, predicted, comparison, seed))


@pytest.mark.parametrize(
    ("verdict", "looks", "loses"),
    [
        ("U", "favours both ends", "It loses the middle"),
        ("recency", "favours the most recent tokens", "It loses the"),
        ("primacy", "favours the earliest tokens", "It loses the"),
        ("flat", "favours no part", "No part of the context is lost"),
    ],
)
def test_shape_decides_the_words(make_measurement, verdict, looks, loses):
    measurement = make_measurement(verdict)
    assert measured_influence(measurement).summary.verdict == verdict
    sentences = answered(measurement)
    assert looks in sentences[0]
    assert sentences[1].startswith(loses)


def test_shares_in_the_words_are_those_of_the_profile(make_measurement):
    measurement = make_measurement("U")
    s = measured_influence(measurement).summary
    text = answered(measurement)[0]
    for end, mass in (("last", s.last_mass), ("first", s.first_mass)):
        said = re.search(rf"{end} {s.ends} tokens hold ([\d.]+) ± ([\d.]+) %", text)
        assert said is not None
        assert float(said[1]) == pytest.approx(100 * mass, abs=float(said[2]) / 10)
    assert f"around position {s.trough} " in answered(measurement)[1]


def test_sink_is_blamed_only_where_there_is_one(make_measurement):
    assert "A sink spoils it" in answered(make_measurement("recency", sink=True))[-1]
    assert "normalisation" in answered(make_measurement("recency", sink=True))[-1]
    assert "sink" not in answered(make_measurement("U", sink=False))[-1]


def test_large_norm_is_named_only_when_large(make_measurement):
    measurement = make_measurement("recency", sink=True)
    measurement["residual_norm"][:] = 10.0
    assert "A sink spoils it" in answered(measurement)[-1]
    assert "normalisation" not in answered(measurement)[-1]


def test_one_prompt_gives_no_intervals_and_no_ceiling(make_measurement):
    text = " ".join(answered(make_measurement("U", prompts=1)))
    assert "no ceiling" in text
    assert "±" not in text
    assert "resamples" not in text


def scored(spearman, wasserstein):
    around = [(value - 0.01, value + 0.01) for value in (spearman, wasserstein)]
    a, b = (Score(value, one) for value, one in zip((spearman, wasserstein), around, strict=True))
    return Agreement(a, b, a, b)


def words(make_measurement, agreements, ceiling):
    measurement = make_measurement("U")
    measured = measured_influence(measurement)
    one = Comparison(agreements, {}, ceiling)
    profiles = {key: harmonic(measured.tokens) for key in agreements}
    return answer(Findings(measurement, measured, profiles, one))


def test_best_is_one_or_two_and_rivals_are_named(make_measurement):
    one = {"fitted": scored(0.9, 0.1), "energy": scored(0.5, 0.3)}
    text = words(make_measurement, one, scored(0.95, 0.05))[2]
    assert "‘residual-aware, fitted logits’ explains it best" in text
    assert "not told apart" not in text
    two = {"fitted": scored(0.9, 0.3), "energy": scored(0.895, 0.1)}
    text = words(make_measurement, two, scored(0.95, 0.05))[2]
    assert "No predictor is best in both respects" in text
    assert "intervals overlap with ‘energy rollout’" in text


def test_ceiling_overlap_is_told_from_a_real_gap(make_measurement):
    agreements = {"fitted": scored(0.9, 0.1), "energy": scored(0.5, 0.3)}
    near = words(make_measurement, agreements, scored(0.91, 0.09))[3]
    far = words(make_measurement, agreements, scored(0.99, 0.01))[3]
    assert "intervals overlap" in near
    assert "intervals apart" not in near
    assert "0.090 short of it, intervals apart" in far


def test_undefined_scores_never_win():
    agreements = {"a": scored(np.nan, 0.2), "b": scored(-0.5, 0.3)}
    assert SPEARMAN.best(agreements) == ["b"]
    assert WASSERSTEIN.best(agreements) == ["a"]
    assert SPEARMAN.best({"a": agreements["a"]}) == []


def test_digits_follow_the_widest_interval():
    wide = Agreement(*[Score(0.5, (0.4, 0.6))] * 4)
    narrow = Agreement(*[Score(0.5, (0.499, 0.501))] * 4)
    assert [one.digits_in(Comparison({"a": wide}, {"b": narrow}, None)) for one in MEASURES] == [2] * 4
    assert SPEARMAN.digits_in(Comparison({"b": narrow}, {}, None)) == 4


def test_errors_of_shares_are_those_of_the_bootstrap(make_measurement):
    measured = measured_influence(make_measurement("U", prompts=60))
    found = shape(measured)
    assert measured.samples is not None
    random = np.random.default_rng(1)
    drawn = measured.samples[random.integers(60, size=(2000, 60))].sum(axis=1)
    ends = measured.summary.ends
    shares = drawn[:, -ends:].sum(axis=1) / drawn.sum(axis=1)
    assert found.last.value == pytest.approx(measured.summary.last_mass, rel=1e-12)
    assert found.last.se == pytest.approx(shares.std(), rel=0.1)
    assert found.depth.value == pytest.approx(measured.summary.trough_depth, rel=1e-9)
    assert found.trough_range is not None
    assert found.trough_range[0] <= measured.summary.trough <= found.trough_range[1]
