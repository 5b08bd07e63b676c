"""What prompts tell of a verdict: right about shuffled prompts, sure of clear ends, equal to a jackknife."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import posbias
from posbias.cli.terminal import describe
from posbias.comparison.extrapolation import BUNDLED
from posbias.profiles.curves import least_stretch
from posbias.profiles.profile import Profile
from posbias.profiles.summary import FLOOR, RISE, doubts, favoured, margins


@pytest.fixture(scope="module")
def measured():
    return posbias.measured_influence(posbias.load_measurement(BUNDLED)).samples


@pytest.mark.parametrize("prompts", [1, 2, 4, 8, 16, 32])
def test_prompts_without_any_bias_are_seldom_judged_to_have_one(measured, prompts):
    """Positions shuffled within each prompt: at most 5 % of verdicts are sure, with room for 60 draws."""
    random, sure, seen = np.random.default_rng(prompts), 0, 0
    for _ in range(60):
        chosen = random.choice(len(measured), prompts, replace=False)
        profile = Profile.from_samples(random.permuted(measured[chosen], axis=1))
        favours = profile.summary.verdict in ("U", "primacy", "recency")
        seen += favours
        sure += favours and not profile.doubts
    assert sure <= 6
    assert prompts > 8 or seen > 6, "the verdict alone would have done"


def test_all_prompts_tell_the_shape_of_the_bundled_measurement(measured):
    profile = Profile.from_samples(measured)
    assert (profile.summary.verdict, profile.doubts) == ("U", [])
    few = Profile.from_samples(measured[:6])
    lines = "\n".join(describe(profile))
    assert f"{len(measured)} prompts decide for both ends" in lines
    ends, last = profile.summary.ends, profile.tokens - profile.summary.ends
    for share in (profile.share(0, ends), profile.share(last, profile.tokens)):
        assert f"{share.value:.2%} ± {share.se:.2%}" in lines
    assert "±" not in "".join(describe(Profile.from_samples(measured[:1])))
    assert "both ends" not in "".join(describe(few))
    (said,) = few.doubts
    assert said.startswith("6 prompts do not tell whether the first 26 are")
    assert said in repr(few)
    assert Profile.from_samples(measured[:1]).doubts == [
        "1 prompt does not tell the verdict, at least 4 needed"
    ]
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
    assert doubts(clear, 2, "U") == ["8 prompts do not tell whether the last 2 are favoured"]
