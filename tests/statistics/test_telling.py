"""What prompts tell: of a verdict, and of where two measurements differ, with errors as rare as promised."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t, ttest_ind, ttest_rel

import posbias
from posbias.comparison.differences import influence_differences
from posbias.core.machine import stream
from posbias.profiles.curves import least_stretch
from posbias.profiles.profile import Profile
from posbias.profiles.summary import FLOOR, RISE, doubts, favoured, margins


@pytest.fixture(scope="module")
def bundled():
    return posbias.measured_influence(posbias.load_measurement("smollm2-135m")).samples


@pytest.mark.parametrize("prompts", [1, 4, 8, 32])
def test_prompts_without_any_bias_are_seldom_judged_to_have_one(bundled, prompts):
    """Positions shuffled within each prompt: at most 5 % of verdicts are sure, with room for 60 draws."""
    random, sure, seen = np.random.default_rng(prompts), 0, 0
    for _ in range(60):
        chosen = random.choice(len(bundled), prompts, replace=False)
        profile = Profile.from_samples(random.permuted(bundled[chosen], axis=1))
        favours = profile.summary.verdict in ("U", "primacy", "recency")
        seen += favours
        sure += favours and not profile.doubts
    assert sure <= 6
    assert prompts > 8 or seen > 6, "the verdict alone would have done"


def test_all_prompts_tell_the_shape_of_the_bundled_measurement(bundled):
    profile, few, one = (Profile.from_samples(bundled[:n]) for n in (None, 6, 1))
    assert (profile.summary.verdict, profile.doubts) == ("U", [])
    assert [len(held.doubts) for held in (few, one)] == [1, 1]
    assert posbias.predict(posbias.preset("bloom-176b"), 64).doubts == []


@given(
    prompts=st.integers(4, 12),
    tokens=st.integers(5, 40),
    ends=st.integers(1, 2),
    last=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_margins_are_those_of_plain_sums_and_a_jackknife(prompts, tokens, ends, last, seed):
    samples = np.random.default_rng(seed).lognormal(0, 0.3, (prompts, tokens))
    places = [least_stretch(samples[1 - half :: 2].mean(axis=0), ends) for half in (0, 1)]
    rows = []
    for number, row in enumerate(samples):
        at = places[number % 2]
        end = row[tokens - ends :].sum() if last else row[:ends].sum()
        middle = ends * np.mean(row[ends : tokens - ends])
        rows.append(
            [end - RISE * row[at : at + ends].sum(), end - FLOOR * ends / tokens * row.sum(), end - middle]
        )
    parts, whole = np.array(rows), samples.sum(axis=1)
    found = margins(samples, ends, last)
    np.testing.assert_allclose([one.value for one in found], parts.mean(axis=0) / whole.mean(), atol=1e-12)
    without = np.array(
        [np.delete(parts, k, 0).sum(axis=0) / np.delete(whole, k).sum() for k in range(prompts)]
    )
    jackknife = np.sqrt((prompts - 1) ** 2 / prompts * without.var(axis=0, ddof=1))
    # to first order a ratio's error is the jackknife's
    np.testing.assert_allclose([one.se for one in found], jackknife, rtol=0.5)


def test_an_end_is_decided_where_all_margins_are_clear():
    clear = np.ones((8, 40)) + np.random.default_rng(0).normal(0, 0.01, (8, 40))
    clear[:, :2] *= 3
    assert favoured(margins(clear, 2, last=False)) is True
    assert favoured(margins(clear, 2, last=True)) is False
    assert doubts(clear, 2, "primacy") == []
    assert len(doubts(clear, 2, "U")) == 1


# --- where two measurements differ -----------------------------------------------------------------------


TOKENS = 40


def drawn(random, prompts, tilt=0.0, shared=None):
    """Influences that vary by prompt in size and place; `shared` is noise that another model has too."""
    noise = random.gamma(4.0, 1.0, (prompts, TOKENS)) if shared is None else shared
    return noise * np.linspace(1 + tilt, 1 - tilt, TOKENS) * random.gamma(9.0, 1.0, (prompts, 1))


def profile(samples, of=None):
    return Profile.from_samples(samples, prompts=of or "")


def test_a_difference_is_that_of_the_shares_and_its_error_that_of_a_t_test():
    """With rows that sum to 1 a share is a mean over prompts: the plain t tests are the reference."""
    random = stream(0, "test")
    one, two = (drawn(random, 20, tilt) for tilt in (0.0, 0.2))
    one, two = (rows / rows.sum(axis=1, keepdims=True) for rows in (one, two))
    for of, test in (("same", ttest_rel), (None, ttest_ind)):
        found = influence_differences(profile(one, of), profile(two, of))
        assert found.paired is (of is not None)
        for part, cut in zip(found.parts, (slice(0, 2), slice(2, 38), slice(38, 40)), strict=True):
            a, b = one[:, cut].sum(axis=1), two[:, cut].sum(axis=1)
            more = {} if of else {"equal_var": False}
            right = test(a, b, **more)
            assert part.p == pytest.approx(a.mean())
            assert part.difference.value == pytest.approx(a.mean() - b.mean())
            assert part.difference.value / part.difference.se == pytest.approx(right.statistic)
            low, high = part.difference.interval
            assert (high - low) / 2 == pytest.approx(t.ppf(1 - 0.05 / 6, right.df) * part.difference.se)


@pytest.mark.parametrize("of", ["same", None])
def test_measurements_that_do_not_differ_seldom_seem_to(of):
    """400 pairs of 24 prompts: at most 5 % by the intervals' level, and three errors of that share more."""
    random = stream(1, "test")
    differing = 0
    for _ in range(400):
        noise = random.gamma(4.0, 1.0, (24, TOKENS)) if of else None
        found = influence_differences(*(profile(drawn(random, 24, 0.0, noise), of) for _ in range(2)))
        differing += found.verdict == "they differ"
    assert differing <= 400 * (0.05 + 3 * np.sqrt(0.05 * 0.95 / 400))


def test_what_has_no_prompts_or_is_no_mass_has_no_answer():
    some, few = (profile(drawn(stream(3, "test"), n)) for n in (8, 3))
    rates = Profile(np.full(TOKENS, 0.5), samples=np.zeros((8, TOKENS)), kind="rate")
    assert influence_differences(some, Profile(np.full(TOKENS, 1 / TOKENS))) is None
    assert influence_differences(few, some) is influence_differences(rates, some) is None
    short = influence_differences(some, profile(drawn(stream(3, "test"), 8)[:, :20]), shares=20)
    assert len(short.parts) == 3
