"""Claims are judged right: they hold, fail or stay undecided as often as their level says."""

import math

import numpy as np
import pytest
from scipy import stats

from posbias.claims import LEAST, NEAR, Claim, Effect, count, difference_effect, mean_effect
from posbias.papers.wu2025.gaps import PAIRS, Gaps, null, rises, signed, turns

NOISE = 0.02


def gaps(
    level: float, *, members: int = 5, accuracy: float = 0.6, seed: int = 0, noise: float = NOISE
) -> Gaps:
    """Networks whose gaps all have one mean."""
    rng = np.random.default_rng(seed)
    drawn = {pair: level + noise * rng.normal(size=members) for pair in PAIRS}
    return Gaps(drawn, np.full(members, accuracy), np.full(members, 1.5), drawn)


def share(verdicts: list[str], kind: str) -> float:
    return sum(one == kind for one in verdicts) / len(verdicts)


# --- one effect --------------------------------------------------------------------------------------------


def test_effects_are_students_and_welchs_tests():
    rng = np.random.default_rng(1)
    a, b = rng.normal(0.1, 0.05, 5), rng.normal(0.0, 0.2, 4)
    assert mean_effect("a", a).p == pytest.approx(stats.ttest_1samp(a, 0.0, alternative="greater").pvalue)
    welch = stats.ttest_ind(a, b, equal_var=False, alternative="greater")
    effect = difference_effect("a − b", a, b)
    assert effect.p == pytest.approx(welch.pvalue)
    assert effect.freedom == pytest.approx(welch.df)
    assert effect.value == pytest.approx(a.mean() - b.mean())


def test_the_opposite_is_tested_against_the_smallest_gap_that_counts():
    values = np.random.default_rng(2).normal(0.01, 0.03, 6)
    below = stats.ttest_1samp(values, LEAST, alternative="less").pvalue
    assert mean_effect("a", values).against == pytest.approx(below)


def test_a_null_control_is_two_one_sided_tests():
    values = np.random.default_rng(3).normal(0.01, 0.03, 6)
    above = stats.ttest_1samp(values, -NEAR, alternative="greater").pvalue
    below = stats.ttest_1samp(values, NEAR, alternative="less").pvalue
    assert mean_effect("a", values, near=True).p == pytest.approx(max(above, below))


@pytest.mark.parametrize(
    ("true", "near", "kind", "least"),
    [
        (0.10, False, "holds", 0.95),
        (-0.10, False, "fails", 0.95),
        (0.0, True, "holds", 0.8),
        (0.12, True, "fails", 0.9),
        (-0.12, True, "fails", 0.9),
    ],
)
def test_power_with_five_networks(true, near, kind, least):
    rng = np.random.default_rng(4)
    verdicts = [mean_effect("a", rng.normal(true, NOISE, 5), near=near).verdict() for _ in range(400)]
    assert share(verdicts, kind) > least


@pytest.mark.parametrize(
    ("true", "near", "wrong"), [(0.0, False, "holds"), (LEAST, False, "fails"), (NEAR, True, "holds")]
)
def test_at_the_edge_a_verdict_is_wrong_no_more_often_than_its_level(true, near, wrong):
    rng = np.random.default_rng(5)
    verdicts = [mean_effect("a", rng.normal(true, NOISE, 3), near=near).verdict() for _ in range(2000)]
    assert share(verdicts, wrong) < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 2000)


def test_three_noisy_networks_decide_nothing():
    assert mean_effect("a", np.array([0.1, -0.2, 0.4])).verdict() == "undecided"


def test_networks_without_any_noise_are_decided_by_their_value():
    assert mean_effect("a", np.full(3, 0.1)).verdict() == "holds"
    assert mean_effect("a", np.full(3, -0.1)).verdict() == "fails"
    assert mean_effect("a", np.zeros(3)).verdict() == "fails"
    assert mean_effect("a", np.zeros(3), near=True).verdict() == "holds"


# --- what has not learnt -----------------------------------------------------------------------------------


def test_networks_that_have_not_learnt_say_nothing():
    idle = gaps(0.3, accuracy=0.05)
    assert not idle.learnt.any()
    effect = signed("idle", idle, "first-last")
    assert effect.verdict() == "undecided"
    assert "networks that learnt to retrieve: 0" in str(effect)


def test_a_member_that_was_stopped_or_has_not_learnt_is_left_out():
    cell = gaps(0.1)
    values = {pair: np.where(np.arange(5) == 1, np.nan, cell.gaps[pair]) for pair in PAIRS}
    accuracy = np.array([0.6, 0.6, 0.6, 0.05, 0.6])
    mixed = Gaps(values, accuracy, cell.loss, values)
    np.testing.assert_array_equal(mixed.learnt, [True, False, True, False, True])
    np.testing.assert_array_equal(mixed.of("first-last"), values["first-last"][[0, 2, 4]])


def test_one_network_is_too_few():
    assert "1 network learnt" in mean_effect("a", np.array([0.2])).flaw
    assert "two needed" in difference_effect("a", np.array([0.2, 0.3]), np.array([0.2])).flaw


# --- claims ------------------------------------------------------------------------------------------------


def effect(kind: str) -> Effect:
    return {
        "holds": Effect("a", 0.3, 0.01, 4.0),
        "fails": Effect("a", -0.3, 0.01, 4.0),
        "undecided": Effect("a", 0.03, 0.1, 4.0),
        "flawed": Effect("a", flaw="not learnt"),
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
    claim = Claim("so it is", tuple(effect(kind) for kind in kinds))
    assert claim.verdict == verdict
    assert str(claim).startswith(f"{verdict}: so it is")
    assert claim.as_dict()["verdict"] == verdict


def test_a_failing_effect_is_shown_before_an_undecided_one():
    claim = Claim("so", (effect("undecided"), effect("fails"), effect("flawed")))
    assert claim.deciding == effect("fails")
    assert Claim("so", (effect("holds"), effect("flawed"))).deciding == effect("flawed")


def test_many_effects_fail_no_more_often_than_one():
    """Ten effects at the edge of failing: Bonferroni keeps the claim from failing in more than 5 %."""
    rng = np.random.default_rng(6)
    verdicts = [
        Claim("so", tuple(mean_effect("a", rng.normal(LEAST, NOISE, 4)) for _ in range(10))).verdict
        for _ in range(600)
    ]
    assert share(verdicts, "fails") < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 600)


def test_cells_are_compared_on_the_named_pair():
    deep, shallow = gaps(0.3, seed=1), gaps(0.1, seed=2)
    assert rises("deep", deep, shallow).verdict() == "holds"
    assert rises("deep", shallow, deep).verdict() == "fails"
    assert signed("later", gaps(-0.2), "first-last", -1).verdict() == "holds"
    assert Claim("none", null("full", gaps(0.0))).verdict == "holds"
    assert Claim("none", null("full", gaps(0.2))).verdict == "fails"


def test_a_series_turns_only_if_it_rises_and_falls():
    def named(cells):
        return {f"depth {k}": cell for k, cell in enumerate(cells)}

    up = [gaps(level, seed=seed, noise=0.01) for seed, level in enumerate((0.0, 0.1, 0.2, 0.3))]
    down = up[::-1]
    bent = [up[0], up[3], up[1]]
    assert turns("bends", {"a": named(up), "b": named(bent)}).verdict == "holds"
    assert turns("bends", {"a": named(up)}).verdict == "fails"
    assert turns("bends", {"a": named(up), "b": named(down)}).verdict == "fails"
    assert turns("bends", {"a": named([gaps(0.1, accuracy=0.03)] * 3)}).verdict == "undecided"


def test_a_flat_series_turns_no_more_often_than_the_level_says():
    verdicts = [
        turns("bends", {"a": {str(k): gaps(0.0, members=3, seed=100 * run + k) for k in range(5)}}).verdict
        for run in range(300)
    ]
    assert share(verdicts, "holds") < 0.05


def test_a_series_that_turns_is_not_failed_for_another_or_for_a_surer_step():
    """A true but noisy turn stays open: one sure step without a rise is not the lack of any."""
    rng = np.random.default_rng(7)

    def series(*steps: tuple[float, float]) -> dict[str, Gaps]:
        return {f"{k}": gaps(*one, members=3) for k, one in enumerate(steps)}

    def gaps(level: float, noise: float, members: int) -> Gaps:
        drawn = {pair: rng.normal(level, noise, members) for pair in PAIRS}
        return Gaps(drawn, np.full(members, 0.6), np.full(members, 1.5), drawn)

    flat, bent = [(0.0, 0.002)] * 5, [(0.1 * (k % 2), 0.06) for k in range(5)]
    beside = [turns("bends", {"a": series(*flat), "b": series(*bent)}).verdict for _ in range(200)]
    within = [turns("bends", {"a": series(*flat[:3], *bent)}).verdict for _ in range(200)]
    assert share(beside, "fails") < 0.05
    assert share(within, "fails") < 0.05
    assert turns("bends", {"a": series(*flat)}).verdict == "fails"


def test_a_series_with_cells_that_have_not_learnt_cannot_fail_to_turn():
    def series(accuracy: float) -> dict[str, Gaps]:
        return {f"depth {k}": gaps(0.1 * k, noise=0.001, seed=k) for k in range(3)} | {
            "depth 3": gaps(0.0, accuracy=accuracy)
        }

    assert turns("bends", {"a": series(0.6)}).verdict == "holds"
    assert turns("bends", {"a": series(0.05)}).verdict == "undecided"


def test_verdicts_are_counted():
    claims = [Claim("a", (effect(kind),)) for kind in ("holds", "holds", "fails")]
    assert count(claims) == {"holds": 2, "fails": 1, "undecided": 0}


def test_a_sentence_names_what_holds_and_what_does_not():
    named = tuple(
        Effect(where, one.value, one.se, one.freedom)
        for where, one in (
            ("decay", effect("holds")),
            ("RoPE", effect("fails")),
            ("none", effect("undecided")),
        )
    )
    text = str(Claim("deeper is earlier", named))
    assert text.startswith(
        "fails: deeper is earlier (holds for decay; fails for RoPE; undecided for none; RoPE −0.300"
    )
    assert "(4 of 4 hold; " in str(Claim("so", (effect("holds"),) * 4))
