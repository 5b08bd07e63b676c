"""Laws of claims and estimates: verdicts hold, fail or stay undecided as often as their level says."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from posbias.core.errors import InvalidValueError
from posbias.profiles.claims import LEAST, NEAR, Above, Below, Near, shares
from posbias.profiles.estimate import Estimate
from posbias_papers.claims import Claim, Evidence, Judged, Printed, count, judge, judged, mean, undecided
from posbias_papers.contrasts import share as share_of

NOISE = 0.02


def claim_that(sentence):
    return Claim("", "", sentence)


# --- one estimate ------------------------------------------------------------------------------------------


def share_over(verdicts: list[str], kind: str) -> float:
    return sum(verdict == kind for verdict in verdicts) / len(verdicts)


def test_effects_are_students_and_welchs_tests():
    rng = np.random.default_rng(1)
    a, b = rng.normal(0.1, 0.05, 5), rng.normal(0.0, 0.2, 4)

    def student(values, at, side):
        return pytest.approx(stats.ttest_1samp(values, at, alternative=side).pvalue)

    assert mean("a", a, test=Above()).p == student(a, 0.0, "greater")
    # the opposite is tested against the smallest gap that counts, a null control by two one-sided tests
    assert mean("b", b, test=Above()).against == student(b, LEAST, "less")
    small = rng.normal(0.01, 0.03, 6)
    both = [
        stats.ttest_1samp(small, at, alternative=side).pvalue
        for at, side in ((-NEAR, "greater"), (NEAR, "less"))
    ]
    assert mean("s", small, test=Near()).p == pytest.approx(max(both))
    effect = Evidence("a − b", Estimate.of_mean(a) - Estimate.of_mean(b), test=Above())
    assert effect.p == pytest.approx(stats.ttest_ind(a, b, equal_var=False, alternative="greater").pvalue)


@pytest.mark.parametrize(
    ("true", "near", "wrong"), [(0.0, False, "holds"), (LEAST, False, "fails"), (NEAR, True, "holds")]
)
def test_at_the_edge_a_verdict_is_wrong_no_more_often_than_its_level(true, near, wrong):
    rng = np.random.default_rng(5)
    verdicts = [
        mean("a", rng.normal(true, NOISE, 3), test=Near() if near else Above()).verdict() for _ in range(2000)
    ]
    assert share_over(verdicts, wrong) < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 2000)


@pytest.mark.parametrize(
    ("values", "test", "verdict"),
    [
        ([0.1, -0.2, 0.4], Above(), "undecided"),
        ([0.1] * 3, Above(), "holds"),
        ([-0.1] * 3, Above(), "fails"),
        ([0.0] * 3, Above(), "fails"),
        ([0.0] * 3, Near(), "holds"),
    ],
)
def test_noisy_networks_decide_nothing_and_those_without_noise_by_their_value(values, test, verdict):
    assert mean("a", np.array(values), test=test).verdict() == verdict
    assert mean("a", np.array(values[:1]), test=test).flaw


# --- claims ---------------------------------------------------------------------------------------------------


def effect(kind: str) -> Evidence:
    return {
        "holds": Evidence("a", Estimate(0.3, 0.01, 5), test=Above()),
        "fails": Evidence("a", Estimate(-0.3, 0.01, 5), test=Above()),
        "undecided": Evidence("a", Estimate(0.03, 0.1, 5), test=Above()),
        "flawed": Evidence("a", flaw="not learnt", test=Above()),
    }[kind]


@pytest.mark.parametrize(
    ("kinds", "verdict"),
    [
        (("holds", "holds"), "holds"),
        (("holds", "fails"), "fails"),
        (("holds", "undecided"), "undecided"),
        (("holds", "flawed"), "undecided"),
        (("flawed", "fails"), "fails"),
    ],
)
def test_a_claim_needs_all_its_effects(kinds, verdict):
    claim = judged(claim_that("so it is"), tuple(effect(kind) for kind in kinds))
    assert claim.verdict == verdict
    assert claim.as_dict()["verdict"] == verdict
    withheld = claim.withheld("a stage of training")
    assert (withheld.verdict, withheld.seen) == ("undecided", claim.seen)
    assert count([claim])[verdict] == 1


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (("holds",) * 2 + ("flawed",) * 2, "2 of 4 hold, 2 undecided; "),
        (("holds", "fails", "fails", "undecided"), "1 of 4 hold, 2 fail, 1 undecided; "),
        (("holds",) * 5, "5 of 5 hold; "),
        (("holds",), ""),
    ],
)
def test_a_claim_says_what_becomes_of_all_its_effects(kinds, said):
    assert shares([effect(kind) for kind in kinds]) == said
    assert judged(claim_that("so it is"), [effect(kind) for kind in kinds]).why.startswith(said)


def test_many_effects_fail_no_more_often_than_one():
    """Ten effects at the edge of failing: Bonferroni keeps the claim from failing in more than 5 %."""
    rng = np.random.default_rng(6)
    verdicts = [
        judged(claim_that("so"), tuple(mean("a", rng.normal(LEAST, NOISE, 4)) for _ in range(10))).verdict
        for _ in range(600)
    ]
    assert share_over(verdicts, "fails") < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 600)


# --- tests -------------------------------------------------------------------------------------------------

numbers = st.floats(-2.0, 2.0)
errors = st.floats(0.001, 0.5)


@given(numbers, errors, numbers, st.floats(0.0, 0.1), st.integers(2, 40))
def test_below_is_above_of_the_negative(value, se, bound, least, n):
    estimate = Estimate(value, se, n)
    mirrored = Above(-bound, least), -estimate
    assert Below(bound, least).p(estimate) == pytest.approx(mirrored[0].p(mirrored[1]))
    assert Below(bound, least).against(estimate) == pytest.approx(mirrored[0].against(mirrored[1]))


@given(numbers, errors, numbers, st.integers(2, 40))
def test_tests_are_about_a_place_not_about_zero(value, se, place, n):
    here, there = Estimate(value, se, n), Estimate(value + place, se, n)
    for test, moved in ((Above(), Above(place)), (Below(), Below(place)), (Near(), Near(place))):
        assert moved.p(there) == pytest.approx(test.p(here), abs=1e-9)
        assert moved.against(there) == pytest.approx(test.against(here), abs=1e-9)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_a_null_control_fails_two_sided(side):
    """Outside on either side: twice the one-sided p-value."""
    estimate = Estimate(side * 0.08, 0.02, 6)
    one_sided = stats.t.sf((0.08 - NEAR) / 0.02, 5)
    assert Near().against(estimate) == pytest.approx(2 * one_sided)
    # between one and two sides the verdict differs: p = .04 one-sided is not enough
    edge = Estimate(side * (NEAR + 0.02 * stats.t.isf(0.04, 5)), 0.02, 6)
    assert Evidence("a", edge, test=Near()).verdict() == "undecided"


@given(st.integers(0, 10**6), st.integers(2, 6), st.floats(-8.0, 8.0), errors, errors)
def test_a_printed_number_agrees_up_to_rounding_and_errors(number, digits, away, ours, theirs):
    printed = Printed(Estimate(number / 10**digits, theirs), digits)
    error = math.hypot(ours, theirs)
    value = printed.number.value + math.copysign(printed.rounding, away) + away * error
    estimate = Estimate(value, ours, 100)
    assert printed.deviation(estimate) == pytest.approx(away, abs=1e-6)
    if abs(abs(away) - printed.errors) > 1e-6:
        verdict = Evidence("a", estimate, test=printed).verdict()
        assert verdict == ("holds" if abs(away) < printed.errors else "fails")
    assert printed.agrees(Estimate(printed.number.value, ours, 100))


def test_a_vague_number_confirms_no_printed_one_but_may_refute_it():
    printed = Printed(Estimate(0.6382), 4, known=5e-4)
    assert Evidence("a", Estimate(0.6382, 1e-3, 100), test=printed).verdict() == "undecided"
    assert Evidence("a", Estimate(0.6382, 1e-4, 100), test=printed).verdict() == "holds"
    assert Evidence("a", Estimate(0.7, 1e-3, 100), test=printed).verdict() == "fails"
    exact = Printed(Estimate(30.0), 0)
    assert Evidence("a", Estimate(30.0), test=exact).verdict() == "holds"
    assert Evidence("a", Estimate(31.0), test=exact).verdict() == "fails"


def test_a_claim_is_judged_on_what_its_quantity_finds():
    claim = Claim("a/b/1", "Section 3", "It rises", lambda results: [Evidence("here", results)], Above(1.0))
    verdict = judge(claim, Estimate(2.0, 0.1, 50))
    assert (verdict.verdict, verdict.estimate.value) == ("holds", 2.0)
    assert verdict.as_dict()["id"] == "a/b/1"
    with pytest.raises(InvalidValueError):
        judge(Claim("a", "", "It rises"), 0)
    with pytest.raises(InvalidValueError):
        judged(claim_that("It rises"), [])
    nothing = undecided(claim_that("It rises"), "not made", "a/b").as_dict()
    assert (nothing["number"], nothing["se"], nothing["verdict"]) == (None, None, "undecided")


def test_a_judged_claim_is_read_as_it_was_written():
    pieces = (effect("holds"), effect("fails"))
    written = judged(Claim("a/b/1", "Section 3", "It rises"), pieces).as_dict()
    again = Judged.read(written, "a/b/1", "a/b")
    assert (again.id, again.paper, again.study, again.evidence) == ("a/b/1", "a", "a/b", ())
    assert again.as_dict() == written | {"paper": "a", "study": "a/b"}
    assert [one["verdict"] for one in again.effects] == ["holds", "fails"]
    with pytest.raises(KeyError, match="verdict"):
        Judged.read({name: written[name] for name in written if name != "verdict"}, "a/b/1", "a/b")


# --- estimates ---------------------------------------------------------------------------------------------


def test_an_estimate_is_exact_known_or_has_students_interval():
    assert (Estimate(0.5).exact, Estimate(0.5).known, Estimate(0.5).interval) == (True, True, (0.5, 0.5))
    assert not Estimate(0.5, math.nan, 1).known
    assert not Estimate(math.nan).known
    low, high = Estimate(1.0, 0.1, 3).interval
    assert (high - 1.0, 1.0 - low) == (pytest.approx(0.1 * stats.t.isf(0.025, 2)),) * 2
    scaled = Estimate(2.0, 0.1, 9).scaled(-3.0)
    assert (scaled.value, scaled.se, scaled.n) == (-6.0, pytest.approx(0.3), 9)
    assert (Estimate(LEAST) - Estimate(0.5, 0.1, 4)).freedom == pytest.approx(3.0)


@given(st.lists(numbers, min_size=2, max_size=9), st.lists(numbers, min_size=2, max_size=9))
def test_differences_of_estimates_are_welchs(more, less):
    gap = Estimate.of_mean(np.array(more)) - Estimate.of_mean(np.array(less))
    assert gap.value == pytest.approx(np.mean(more) - np.mean(less), abs=1e-12)
    if np.ptp(more) > 1e-3 and np.ptp(less) > 1e-3:
        welch = stats.ttest_ind(more, less, equal_var=False)
        assert gap.freedom == pytest.approx(max(1.0, welch.df))
        low, high = welch.confidence_interval()
        assert gap.interval == pytest.approx((low, high))


# --- shares of cells -------------------------------------------------------------------------------------


def test_the_error_of_a_share_is_that_of_the_cells():
    """A cell counts where its noisy effect is above zero; how often that is varies as the error says."""
    random, truth, se = np.random.default_rng(0), np.array([0.0, 0.05, 0.1, -0.02]), 0.05
    one = share_of("cells", [Evidence("c", Estimate(effect, se), test=Above()) for effect in truth])
    drawn = (random.normal(truth, se, (20_000, 4)) > 0).mean(axis=1)
    assert one.estimate.value == pytest.approx(drawn.mean(), abs=0.01)
    assert one.estimate.se == pytest.approx(drawn.std(), rel=0.05)


def test_a_cell_of_which_nothing_is_known_counts_one_half():
    known, unknown = Evidence("a", Estimate(0.3, 0.01), test=Above()), Evidence("b", flaw="not measured")
    assert share_of("cells", [known, unknown]).estimate.value == 0.75
    assert share_of("cells", [known, unknown]).estimate.se == 0.25
    assert share_of("cells", [unknown, unknown]).flaw == "not measured"
