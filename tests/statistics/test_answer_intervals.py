"""How often intervals of retrieval asked in words hold the truth."""

import re

import numpy as np
import pytest

from posbias.imports.trials import of_rows
from posbias.retrieval.answer_curve import GAPS
from posbias.retrieval.asking import ask
from posbias.retrieval.factor import profile_difference
from posbias.retrieval.job import retrieval_job
from posbias.retrieval.resampling import resampled

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
        samples = np.stack([hits[:, 0], hits[:, 0] - hits[:, 1]], axis=1)
        place, gap = resampled(samples, [(0, 1), (-1, 1)], draw)
        held += [
            place.interval[0] <= first <= place.interval[1],
            gap.interval[0] <= first - middle <= gap.interval[1],
        ]
    assert (held / DRAWS >= 0.92 - 0.04).all(), held / DRAWS


@pytest.mark.slow
@pytest.mark.parametrize("trials", [20, 64])
def test_intervals_of_what_a_way_to_ask_changes_hold_together(trials):
    """In 95 % of experiments all four, less four standard errors; places share what makes a set hard."""
    random, held, draws = np.random.default_rng(11), 0, 200
    cuts = [np.array([1.1, 0.7, 1.0]), np.array([1.2, 1.2, 1.2])]
    rates = [np.where(cut > 1, 1 - (2 - cut) ** 2 / 2, cut**2 / 2) for cut in cuts]
    truth = _mean_and_gaps((rates[1] - rates[0])[None])[0]
    for draw in range(draws):
        hard = random.random((trials, 1))
        one, other = ((hard + random.random((trials, 3)) < cut).astype(float) for cut in cuts)
        numbers = resampled(_mean_and_gaps(other - one), [(-1, 1), *[(-2, 2)] * 3], draw, together=4)
        held += all(n.interval[0] <= t <= n.interval[1] for n, t in zip(numbers, truth, strict=True))
    assert held / draws >= 0.95 - 4 * np.sqrt(0.95 * 0.05 / draws), held / draws


@pytest.mark.slow
@pytest.mark.parametrize(("trials", "others"), [(20, 20), pytest.param(64, 200, marks=pytest.mark.slow)])
def test_intervals_between_curves_of_other_trials_hold_together(trials, others):
    """In 95 % of experiments all four, less four standard errors, though the two share no trial."""
    random, held, draws = np.random.default_rng(11), 0, 100
    cuts = [np.array([1.1, 0.7, 1.0]), np.array([1.2, 1.2, 1.2])]
    rates = [np.where(cut > 1, 1 - (2 - cut) ** 2 / 2, cut**2 / 2) for cut in cuts]
    truth = _mean_and_gaps((rates[1] - rates[0])[None])[0]
    for _ in range(draws):
        one, other = (
            of_rows(
                (random.random((count, 1)) + random.random((count, 3)) < cut).astype(float),
                kind="rate", measures="accuracy",
            )
            for count, cut in zip((trials, others), cuts, strict=True)
        )  # fmt: skip
        found = profile_difference(other, one)
        assert not found.paired
        intervals = [number.interval for number in found.numbers.values()]
        held += all(low <= t <= high for (low, high), t in zip(intervals, truth, strict=True))
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
        gaps = [curve.gaps[name].interval for name in GAPS]
        held += [low <= gap <= high for (low, high), gap in zip(gaps, truth, strict=True)]
    assert 32 <= min(asked) < max(asked) < 400
    assert (held / draws >= 0.95 - 4 * np.sqrt(0.95 * 0.05 / draws)).all(), held / draws


def _mean_and_gaps(places):
    first, middle, last = places.T
    return np.stack([places.mean(axis=1), first - middle, last - middle, first - last], axis=1)


def _quantile(rate):
    """Of the mean of two even numbers, the point below which it lies with this rate."""
    return np.sqrt(rate / 2) if rate <= 0.5 else 1 - np.sqrt((1 - rate) / 2)
