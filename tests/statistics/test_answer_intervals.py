"""How often intervals of retrieval asked in words hold the truth."""

import re

import numpy as np
import pytest

from posbias.profiles.gaps import EQUIVALENCE, GAPS, at_ceiling, decide, gaps_of, resampled
from posbias.profiles.place_differences import profile_difference
from posbias.profiles.places import Places
from posbias.retrieval import ask, retrieval_job

DRAWS = 400


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sets", "first", "middle"), [(20, 0.9, 0.6), (64, 0.9, 0.6), (64, 0.5, 0.5), (200, 0.97, 0.9)]
)
def test_intervals_of_places_and_of_gaps_hold_the_truth(sets, first, middle):
    """At least 92 % of 95 % intervals, less four standard errors of the trial (.01 each at 400 draws)."""
    random = np.random.default_rng(7)
    held = np.zeros(2)
    for draw in range(DRAWS):
        hard = random.random((sets, 1)) * 0.5 + random.random((sets, 2)) * 0.5
        # hard sets are hard at both places; a sum of two halves is below its own quantile with the wanted rate
        cut = [_quantile(first), _quantile(middle)]
        hits = (hard < cut).astype(float)
        columns = {(0.0, 1.0): {"place": hits[:, 0]}, (-1.0, 1.0): {"gap": hits[:, 0] - hits[:, 1]}}
        place, gap = resampled(columns, draw).values()
        held += [
            place.interval[0] <= first <= place.interval[1],
            gap.interval[0] <= first - middle <= gap.interval[1],
        ]
    assert (held / DRAWS >= 0.92 - 0.04).all(), held / DRAWS


@pytest.mark.slow
@pytest.mark.parametrize(("trials", "others"), [(20, None), (64, None), (20, 20), (64, 200)])
def test_intervals_of_what_changes_between_ways_to_ask_or_curves_hold_together(trials, others):
    """In 95 % of experiments all four, less four standard errors; places share what makes a set hard.

    Ways to ask share their trials; curves of `others` share none.
    """
    random, held, draws = np.random.default_rng(11), 0, 200 if others is None else 100
    cuts = [np.array([1.1, 0.7, 1.0]), np.array([1.2, 1.2, 1.2])]
    rates = [np.where(cut > 1, 1 - (2 - cut) ** 2 / 2, cut**2 / 2) for cut in cuts]
    truth = _mean_and_gaps((rates[1] - rates[0])[None])[0]
    for draw in range(draws):
        hard = [random.random((trials, 1))] * 2
        if others is not None:
            hard[1] = random.random((others, 1))
        one, other = (
            (each + random.random((len(each), 3)) < cut).astype(float)
            for each, cut in zip(hard, cuts, strict=True)
        )
        job = {"seed": draw} if others is None else {}
        rows = (Places({"accuracy": each}, np.arange(3), job=job).profile() for each in (other, one))
        found = profile_difference(*rows)
        assert found.paired == (others is None)
        numbers = found.numbers.values()
        held += all(n.interval[0] <= t <= n.interval[1] for n, t in zip(numbers, truth, strict=True))
    assert held / draws >= 0.95 - 4 * np.sqrt(0.95 * 0.05 / draws), held / draws


@pytest.mark.slow
@pytest.mark.parametrize("rates", [(0.5, 0.5, 0.5), (0.97, 0.9, 0.95)])
def test_intervals_hold_the_truth_where_asking_stops_when_they_are_narrow(rates):
    """Each gap's in 95 %, less four standard errors, though their width decides the number of trials."""
    job, draws, held, asked = retrieval_job("keys", pairs=3, positions=3, prompts=400), 150, np.zeros(3), []
    truth = _mean_and_gaps(np.array([rates]))[0, 1:]
    for draw in range(draws):
        random = np.random.default_rng(draw)

        def answer(prompt, random=random):
            """Right with the rate of the place; alone, in a drawn order and without the fact as in the middle."""
            owner = re.findall(r'"([\w ]+)": "$', prompt)[0]
            pairs = re.findall(r'"([\w ]+)": "([\w ]+)"', prompt)
            place = next((k for k, (name, _) in enumerate(pairs) if name == owner), 1)
            return dict(pairs).get(owner, "") if random.random() < rates[place] else "nobody knows"

        curve = ask(answer, job, until=0.15)
        asked.append(curve.prompts)
        gaps = [curve.deciding[name].interval for name in GAPS]
        held += [low <= gap <= high for (low, high), gap in zip(gaps, truth, strict=True)]
    assert 32 <= min(asked) < max(asked) < 400
    assert (held / draws >= 0.95 - 4 * np.sqrt(0.95 * 0.05 / draws)).all(), held / draws


@pytest.mark.parametrize(
    ("trials", "gap", "equivalence", "alike", "differ"),
    [
        (60, 0.0, 0.05, (0, 0.05), (0, 0.05)),
        (60, 0.14, 0.05, (0, 0.05), (0.8, 0.8)),  # what 60 questions detect, in 80 % of experiments
        (60, 0.2, 0.2, (0, 0.05), (0.8, 1)),
        pytest.param(1000, 0.05, 0.05, (0, 0.05), (0.8, 1), marks=pytest.mark.slow),
        pytest.param(1000, 0.0, 0.05, (0.7, 1), (0, 0.05), marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_no_difference_is_seldom_said_of_one_and_what_is_detectable_is_seen(
    trials, gap, equivalence, alike, differ
):
    """Shares of 200 draws, with four standard errors; the first of ten places is better by `gap`."""
    random, seen, within, least, draws = np.random.default_rng(1), 0, 0, [], 200
    rates = np.r_[0.7 + gap, np.full(9, 0.7)]
    cut = np.where(rates <= 0.5, np.sqrt(2 * rates), 2 - np.sqrt(2 * (1 - rates)))
    for draw in range(draws):
        found = (random.random((trials, 1)) + random.random((trials, 10)) < cut).astype(float)
        first = resampled({(-1.0, 1.0): {"gap": gaps_of(found)["first - middle"]}}, draw)["gap"]
        seen, within = seen + (first.sign != 0), within + first.within(equivalence)
        least.append(first.detectable)
    for share, (low, high) in ((within / draws, alike), (seen / draws, differ)):
        assert low - 4 * np.sqrt(0.16 / draws) <= share <= high + 4 * np.sqrt(0.05 * 0.95 / draws), share
    assert gap != 0.14 or np.mean(least) == pytest.approx(gap, abs=0.01)


@pytest.mark.parametrize("trials", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_rare_differences_are_not_called_none(trials):
    """Trials are alike at all places, but for one of twenty that misses the middle: 5 % say otherwise at most."""
    random, within, draws = np.random.default_rng(1), 0, 300
    for draw in range(draws):
        missed = (random.random(trials) < 0.05).astype(float)
        within += resampled({(-1.0, 1.0): {"gap": missed}}, draw)["gap"].within(0.05)
    assert within / draws <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / draws), within


def test_verdicts_are_decided_by_intervals():
    """Rows of scores and how often each was seen, to the verdict's first word."""
    for rows, verdict in (
        ([[1, 1, 1]] * 20, "at ceiling"),
        ([[1, 1, 1]] * 399 + [[0, 1, 1]], "at ceiling"),
        ([[1, 1, 1], [0, 0, 0]] * 300, "flat"),
        ([[1, 1, 1], [0, 0, 0]] * 10, "inconclusive"),
        ([[1, 0, 1]] * 20, "U"),
        ([[1, 0]] * 20, "primacy"),
        ([[0, 0, 1, 0]] * 20, "middle"),
    ):
        found = np.array(rows, dtype=float)
        gaps = resampled({(-1.0, 1.0): gaps_of(found), (0.0, 1.0): {"mean": found.mean(axis=1)}})
        assert decide(gaps, EQUIVALENCE, ceiling=at_ceiling(found, gaps.pop("mean"))) == verdict


@pytest.mark.parametrize(
    ("places", "trials"), [(3, 60), (5, 50), pytest.param(10, 400, marks=pytest.mark.slow)]
)
def test_a_flat_curve_is_accused_in_5_percent_and_a_true_gap_is_seen(places, trials):
    """Of 400 draws, with four standard errors: both ends are looked at together."""
    random, accused, seen, draws = np.random.default_rng(3), 0, 0, 400
    gap = np.r_[0.45, np.zeros(places - 1)]
    for draw in range(draws):
        hard = random.random((trials, 1)) + random.random((trials, places))
        flat, primacy = (
            decide(resampled({(-1.0, 1.0): gaps_of((hard < 1.0 + shift).astype(float))}, draw), None)
            for shift in (0.0, gap)
        )
        accused, seen = accused + (flat != "inconclusive"), seen + (primacy in ("primacy", "U"))
    assert accused / draws <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / draws), accused
    assert seen / draws > 0.9


def _mean_and_gaps(places):
    first, middle, last = places.T
    return np.stack([places.mean(axis=1), first - middle, last - middle, first - last], axis=1)


def _quantile(rate):
    """Of the mean of two even numbers, the point below which it lies with this rate."""
    return np.sqrt(rate / 2) if rate <= 0.5 else 1 - np.sqrt((1 - rate) / 2)
