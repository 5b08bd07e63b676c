"""The gate's operating characteristic: looks, levels and the announced number of questions, by simulation."""

import numpy as np
import pytest

from posbias.checking.boundaries import ABOVE, WITHIN, boundary, decided, limits, looks_at, questions_for

RUNS, LOOKS = 2000, 4
GAPS = np.array([[1, -1, 0], [0, -1, 1], [1, 0, -1]])
"""Of three places: first − middle, last − middle, first − last."""
NUMBERS = np.concatenate([GAPS, -GAPS]).T


@pytest.mark.parametrize(
    ("power", "constants"),
    [(0.0, [1.960, 1.977, 2.004, 2.024, 2.040]), (0.5, [1.960, 2.178, 2.289, 2.361, 2.413])],
)
def test_boundaries_are_the_published_ones(power, constants):
    """Two-sided .05, of Jennison & Turnbull 2000: of O'Brien & Fleming at the last look, and of Pocock."""
    found = [boundary(looks, 0.05, power)[-1] for looks in range(1, 6)]
    assert found == pytest.approx(constants, abs=6e-4)
    assert boundary(4, 0.05, power)[0] == pytest.approx(found[3] * 4 ** (0.5 - power))


def outcomes(accuracies, alike, questions, most, random, runs=RUNS):
    """What is decided in each of many runs; `alike`: the share of questions whose places share their luck."""
    at = np.array(looks_at(questions, LOOKS))
    luck = random.random((runs, questions, 3), dtype=np.float32)
    shared = random.random((runs, questions, 1), dtype=np.float32) < alike
    right = np.where(shared, luck[..., :1], luck) < np.float32(accuracies)
    rows = right.astype(np.float32) @ NUMBERS.astype(np.float32)
    means, squares = (
        part.cumsum(axis=1, dtype=np.float64)[:, at - 1] / at[:, None] for part in (rows, rows**2)
    )
    errors = np.sqrt(np.maximum(squares - means**2, 0) / (at - 1)[:, None])
    return decided(*limits(means, errors, (at - 1.0)[:, None], most, LOOKS), most)


def needed(accuracies, alike, most, random):
    """The announced number, at the variance of many questions."""
    luck, shared = random.random((200_000, 3)), random.random((200_000, 1)) < alike
    rows = (np.where(shared, luck[:, :1], luck) < accuracies) @ NUMBERS
    return questions_for(np.cov(rows.T), most, LOOKS)


def test_the_announced_number_decides_and_is_the_least(capsys):
    """At an accuracy of .8, three places, d = the limit; each share of 2,000 runs has a standard error ≤ .007."""
    random, table = np.random.default_rng(0), []
    flat = (0.8, 0.8, 0.8)
    for alike in (0.0, 0.5):
        for most in (0.1, 0.2):
            count = needed(flat, alike, most, random)
            none, fewer = (outcomes(flat, alike, int(n), most, random) for n in (count, 0.9 * count))
            twice = (0.8, 0.8 - 2 * most, 0.8 - most)  # one gap of twice the limit, the others at it
            larger = needed(twice, alike, most, random)
            fails, limit = outcomes(twice, alike, larger, most, random), (0.8, 0.8 - most, 0.8 - most)
            at_limit = outcomes(limit, alike, needed(limit, alike, most, random), most, random)
            shares = [
                (fails == ABOVE).mean(),
                (at_limit == ABOVE).mean(),
                (at_limit == WITHIN).mean(),
                (none == WITHIN).mean(),
                (fewer == WITHIN).mean(),
            ]
            table.append([alike, most, count, larger, *shares])
    with capsys.disabled():
        print(
            "\nalike limit   N(0) N(2·limit)  2·limit fails, limit fails, limit passes, 0 passes, with .9 N"
        )
        for row in table:
            print(
                "{:5.1f} {:5.1f} {:6.0f} {:10.0f} ".format(*row[:4]), *(f"{share:14.3f}" for share in row[4:])
            )
    found, error = np.array(table)[:, 4:], 3 * 0.007
    assert (found[:, 0] > 0.9 - error).all()
    assert (found[:, [1, 2]] < 0.05 + 3 * 0.005).all()
    assert (abs(found[:, 3] - 0.9) < error + 0.01).all()
    assert (found[:, 4] < 0.9 - 0.02).all()


@pytest.mark.parametrize("accuracies", [(1, 0.9, 1), (1, 1, 0.9), (0.1, 0, 0)])
def test_few_questions_that_differ_do_not_promise_too_much(accuracies):
    """A gap at the limit passes in at most 5 % where most questions say nothing."""
    for questions in (30, 60, 200):
        found = outcomes(accuracies, 0.5, questions, 0.1, np.random.default_rng(questions))
        assert (found == WITHIN).mean() < 0.05 + 3 * 0.005
        assert (found == ABOVE).mean() < 0.05


def test_at_the_ceiling_the_rule_of_three_decides():
    """All right: 0.9^n ≤ 5 % from 29 questions on, with one look."""
    for questions, status in ((28, 4), (29, WITHIN)):
        alike = np.zeros((1, 6))
        assert decided(*limits(alike, alike, np.array([[questions - 1.0]]), 0.1, 1), 0.1) == status
