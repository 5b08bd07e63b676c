"""The words of a report follow from the numbers."""

import math
import re

import numpy as np
import pytest

from posbias.comparison.agreement import Agreement, Reliability
from posbias.comparison.predictors import folds, predictions
from posbias.comparison.scores import Comparison, Difference, compare_all
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import harmonic, measured_influence
from posbias.reports.findings import MEASURES, SPEARMAN, WASSERSTEIN, Findings
from posbias.reports.sentences import EXPECTED, FAVOURS, PROMPT, SURE, WEIGHS, WHERE, answers, verdicts


def found_in(measurement, seed=0):
    measured, predicted = measured_influence(measurement), predictions(measurement)
    comparison = compare_all(predicted, measured, held_out=folds(measurement), seed=seed)
    return Findings(measurement, measured, predicted, comparison, seed)


@pytest.mark.parametrize("verdict", ["U", "recency", "primacy", "flat"])
def test_shape_decides_the_words_and_shares_in_them_are_those_of_the_profile(make_measurement, verdict):
    found = found_in(make_measurement(verdict))
    s, text = found.measured.summary, answers(found)
    assert s.verdict == verdict
    assert FAVOURS[verdict] in text[WHERE]
    assert WEIGHS[verdict] in text[PROMPT]
    for end, mass in (("last", s.last_mass), ("first", s.first_mass)):
        said = re.search(rf"{end} {s.ends} (?:hold )?([\d.]+) ± ([\d.]+) %", text[WHERE])
        assert said is not None
        assert float(said[1]) == pytest.approx(100 * mass, abs=float(said[2]) / 10)
    assert f"position {s.trough} " in text[WHERE]
    assert "8 prompts" in text[SURE]


def test_what_the_prompts_leave_open_is_said(make_measurement):
    noisy = make_measurement("flat", prompts=4)
    noisy["influence"][0, 0] *= 40.0  # one prompt favours the first token, by far
    found = found_in(noisy)
    assert found.measured.doubts
    assert all(doubt in answers(found)[SURE] for doubt in found.measured.doubts)


@pytest.mark.parametrize("shape", ["U", "recency", "primacy", "flat"])
def test_what_its_architecture_lets_one_expect_is_the_positional_prediction(make_measurement, shape):
    found = found_in(make_measurement(shape))
    expected, comparison = found.predictions["positional"].summary, found.comparison
    text = answers(found)[EXPECTED]
    assert FAVOURS[expected.verdict] in text
    assert f"{100 * expected.last_mass:.3g} %" in text
    off = comparison.agreements["positional"].wasserstein.value
    assert float(re.search(r"influence lies ([\d.]+) %", text)[1]) == pytest.approx(100 * off, abs=0.6)
    nearer = off < comparison.baselines["uniform"].wasserstein.value
    assert not re.search(f" {'farther' if nearer else 'nearer'} than an even spread", text)


def test_no_answer_needs_the_papers(make_measurement):
    for sink in (False, True):
        text = " ".join(answers(found_in(make_measurement("recency", sink=sink))).values())
        assert not re.search(r"Spearman|Wasserstein|rollout|λ|et al|Eq\.|kernel|logit|softmax|trough", text)


def test_a_sink_is_named_only_where_there_is_one(make_measurement):
    assert "sink" in verdicts(found_in(make_measurement("recency", sink=True)))[-1]
    assert "sink" not in verdicts(found_in(make_measurement("U", sink=False)))[-1]


def test_one_prompt_gives_no_intervals_and_no_noise(make_measurement):
    found = found_in(make_measurement("U", prompts=1))
    text = " ".join([*answers(found).values(), *verdicts(found)])
    assert found.ceiling is None
    assert not re.search(r"±|resamples|\[", text)


def scored(spearman, wasserstein, reach=0.01):
    a, b = (
        Estimate(value, math.nan, ends=(value - reach, value + reach)) for value in (spearman, wasserstein)
    )
    return Agreement(a, b, a, b)


def best_of(make_measurement, agreements, difference):
    """What is said of the best where the first predictor minus the second is this."""
    measured = measured_influence(make_measurement("U"))
    comparison = Comparison(
        agreements,
        {"uniform": scored(np.nan, 0.2)},
        Reliability(*[scored(0.5, 0.2)] * 4),
        (Difference(*agreements, difference),),
    )
    profiles = {key: harmonic(measured.tokens) for key in agreements}
    return verdicts(Findings(make_measurement("U"), measured, profiles, comparison))[0]


def test_paired_differences_decide_and_not_intervals_that_overlap(make_measurement):
    """Two scores whose intervals overlap can differ for certain; what they share drops out of the difference."""
    agreements = {"energy": scored(0.88, 0.15, 0.1), "fitted": scored(0.9, 0.1, 0.1)}
    sentence = best_of(make_measurement, agreements, scored(-0.02, 0.05))
    assert sentence.count("better than every other") == 2
    sentence = best_of(make_measurement, agreements, scored(-0.02, 0.05, 0.06))
    # a Wasserstein distance is better when less
    assert re.findall(r"\(by ([^)]*)\)", sentence) == ["0.020 [−0.040, 0.080]", "0.050 [−0.010, 0.110]"]


def test_a_predictor_is_not_praised_without_an_even_spread(make_measurement):
    agreements = {"energy": scored(0.5, 0.3), "fitted": scored(0.9, 0.4)}
    assert "an even spread is nearer with 0.200" in best_of(make_measurement, agreements, scored(-0.4, -0.1))


def test_undefined_scores_never_win():
    agreements = {"a": scored(np.nan, 0.2), "b": scored(-0.5, 0.3)}
    assert SPEARMAN.best(agreements) == ["b"]
    assert WASSERSTEIN.best(agreements) == ["a"]
    assert SPEARMAN.best({"a": agreements["a"]}) == []


def test_digits_follow_the_widest_interval():
    wide = Agreement(*[Estimate(0.5, math.nan, ends=(0.4, 0.6))] * 4)
    narrow = Agreement(*[Estimate(0.5, math.nan, ends=(0.499, 0.501))] * 4)
    assert [one.digits_in(Comparison({"a": wide}, {"b": narrow}, None)) for one in MEASURES] == [2] * 4
    assert SPEARMAN.digits_in(Comparison({"b": narrow}, {}, None)) == 4


def test_errors_of_shares_are_those_of_the_bootstrap(make_measurement):
    found = found_in(make_measurement("U", prompts=60))
    measured, (_, last) = found.measured, found.ends
    assert measured.samples is not None
    random = np.random.default_rng(1)
    drawn = measured.samples[random.integers(60, size=(2000, 60))].sum(axis=1)
    ends = measured.summary.ends
    shares = drawn[:, -ends:].sum(axis=1) / drawn.sum(axis=1)
    assert last.value == pytest.approx(measured.summary.last_mass, rel=1e-12)
    assert last.se == pytest.approx(shares.std(), rel=0.1)
    assert found.trough_range is not None
    assert found.trough_range[0] <= measured.summary.trough <= found.trough_range[1]
