"""Where two measurements differ: within prompts where they are shared, and errors as rare as promised."""

import json

import numpy as np
import pytest
from answers import faults
from scipy.stats import t, ttest_ind, ttest_rel

from posbias.cli import main
from posbias.comparison.differences import influence_differences
from posbias.core.machine import stream
from posbias.profiles.profile import Profile

TOKENS = 40


def drawn(random, prompts, tilt=0.0, shared=None):
    """Influences that vary by prompt in size and place; `shared` is noise that another model has too."""
    noise = random.gamma(4.0, 1.0, (prompts, TOKENS)) if shared is None else shared
    return noise * np.linspace(1 + tilt, 1 - tilt, TOKENS) * random.gamma(9.0, 1.0, (prompts, 1))


def profile(samples, of=None):
    return Profile.from_samples(samples, attrs={} if of is None else {"prompts": of})


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
        differing += influence_differences(
            *(profile(drawn(random, 24, 0.0, noise), of) for _ in range(2))
        ).differ
    assert differing <= 400 * (0.05 + 3 * np.sqrt(0.05 * 0.95 / 400))


def test_what_prompts_share_drops_out():
    random = stream(2, "test")
    noise = random.gamma(1.0, 1.0, (24, TOKENS))
    one, two = (drawn(random, 24, tilt, noise) for tilt in (0.0, 0.05))
    within, between = (influence_differences(profile(one, of), profile(two, of)) for of in ("same", None))
    assert within.differ
    assert not between.differ
    assert [part.difference.value for part in within.parts] == [
        part.difference.value for part in between.parts
    ]
    assert "on the same 24 prompts: they differ at the first 2 (" in within.sentence()
    assert "on 24 and 24 prompts that are not the same: inconclusive" in between.sentence()


def test_what_has_no_prompts_or_is_no_mass_has_no_answer():
    some = profile(drawn(stream(3, "test"), 8))
    assert influence_differences(some, Profile(np.full(TOKENS, 1 / TOKENS))) is None
    assert influence_differences(profile(drawn(stream(3, "test"), 3)), some) is None
    rates = Profile(np.full(TOKENS, 0.5), samples=np.zeros((8, TOKENS)), kind="rate")
    assert influence_differences(rates, some) is None
    short = influence_differences(some, profile(drawn(stream(3, "test"), 8)[:, :20]), shares=20)
    assert [one.part for one in short.parts] == [
        "at the first position",
        "in the middle",
        "at the last position",
    ]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Two models on the same prompts, and one of them on others."""
    folder = tmp_path_factory.mktemp("measured")
    for name, model, seed in (("one", "tiny-alibi", 0), ("two", "tiny-rope", 0), ("others", "tiny-rope", 1)):
        words = [
            model,
            "--tokens",
            "32",
            "--prompts",
            "6",
            "--seed",
            str(seed),
            "--out",
            str(folder / f"{name}.nc"),
        ]
        main(["measure", *words])
    return folder


def test_compare_says_where_two_measurements_differ(measured, capsys):
    one, two, others = (str(measured / f"{name}.nc") for name in ("one", "two", "others"))
    capsys.readouterr()
    for q, paired in ((two, True), (others, False)):
        main(["compare", one, q, "--json"])
        answer = json.loads(capsys.readouterr().out)
        assert not faults(answer)
        found = answer["influence_differences"]
        assert found["paired"] is paired
        assert found["prompts"] == [6, 6]
        main(["compare", one, q])
        said = capsys.readouterr().out
        assert ("they differ" in said) is (found["verdict"] == "they differ")
        assert ("on the same 6 prompts" in said) is paired
    main(["predict", "bloom-176b", "--tokens", "32", "--out", str(measured / "prediction.json"), "--json"])
    capsys.readouterr()
    main(["compare", str(measured / "prediction.json"), two, "--json"])
    assert json.loads(capsys.readouterr().out)["influence_differences"] is None
