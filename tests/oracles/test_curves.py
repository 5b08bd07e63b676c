"""Numbers by share of the context against exact fractions, and profiles shown, drawn and given to pandas."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import posbias
from posbias.core.errors import InvalidValueError
from posbias.profiles.curves import at_shares
from posbias.profiles.profile import Profile

numbers = st.integers(1, 30).flatmap(lambda n: arrays(np.float64, n, elements=st.floats(-10, 10)))


def overlaps(values, shares, total):
    """The same in exact arithmetic, by the definition: what each position has in common with each stretch."""
    n, found = len(values), []
    for k in range(shares):
        left, right = Fraction(k, shares), Fraction(k + 1, shares)
        parts = [
            Fraction(float(one))
            * n
            * max(Fraction(0), min(right, Fraction(j + 1, n)) - max(left, Fraction(j, n)))
            for j, one in enumerate(values)
        ]
        found.append(float(sum(parts) if total else sum(parts) * Fraction(shares, n)))
    return found


@given(numbers, st.integers(1, 40), st.booleans())
def test_shares_are_the_overlaps(values, shares, total):
    expected = overlaps(values, shares, total)
    np.testing.assert_allclose(at_shares(values, shares, total=total), expected, rtol=1e-13, atol=1e-13)
    batch = np.stack([values, -2 * values])
    np.testing.assert_array_equal(
        at_shares(batch, shares, total=total)[0], at_shares(values, shares, total=total)
    )


@given(numbers, st.integers(1, 5))
def test_finer_and_back_is_the_same_and_as_many_shares_change_nothing(values, times):
    np.testing.assert_array_equal(at_shares(values, values.size, total=True), values)
    finer = at_shares(values, times * values.size, total=True)
    np.testing.assert_allclose(at_shares(finer, values.size, total=True), values, rtol=1e-14, atol=1e-300)


def test_tiny_masses_keep_their_digits():
    mass = np.array([1.0, 1e-200, 3e-200])
    assert at_shares(mass, 2, total=True)[1] == pytest.approx(3.5e-200, rel=1e-14)


def test_a_profile_by_share_keeps_mass_prompts_and_what_it_leaves_out():
    samples = np.random.default_rng(0).random((5, 12))
    about = {"model": "m", "band": object()}
    profile = Profile.from_samples(samples, attrs=about, left_out=("λ",))
    coarse = profile.by_share(5)
    assert (coarse.tokens, coarse.query, coarse.left_out, coarse.se) == (5, 4, ("λ",), None)
    assert coarse.attrs == {"model": "m", "positions": 12}
    assert coarse.mass.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(Profile.from_samples(np.asarray(coarse.samples)).mass, coarse.mass)
    rate = Profile(np.array([0.0, 1.0, 1.0, 0.5]), kind="rate").by_share(2)
    np.testing.assert_allclose(rate.mass, [0.5, 0.75])
    with pytest.raises(InvalidValueError, match=r"query: 3 given, the last position \(11\) needed"):
        Profile.from_samples(samples, query=3).by_share(4)
    with pytest.raises(InvalidValueError, match="shares: 0 given"):
        profile.by_share(0)


def test_a_profile_shows_itself_in_a_few_lines():
    shown = repr(
        posbias.predict(posbias.Architecture(4, mixing=posbias.ConstantMixing(0.5), name="four"), 64)
    )
    assert len(shown.splitlines()) == 4
    for words in ("rollout of four, 64 positions", "verdict: U", "the first 3 hold", "flatness 0."):
        assert words in shown
    unknown = repr(posbias.predict(posbias.Architecture(4), 64))
    assert "no verdict: λ not known" in unknown
    assert "5 prompts" in repr(Profile.from_samples(np.ones((5, 8))))
    assert repr(Profile(np.array([0.25, 1.0]), kind="rate")).endswith("rate: 0.25 to 1")
    assert "flatness" in repr(Profile(np.zeros(3), missing_mass=1.0))


def test_a_profile_goes_to_pandas():
    series = Profile(np.array([0.25, 0.75])).to_series()
    assert (series.index.name, series.name, series.tolist()) == ("position", "rollout", [0.25, 0.75])


def test_a_profile_draws_itself():
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib import pyplot

    profile = Profile.from_samples(np.random.default_rng(1).random((6, 20)))
    ax = profile.plot()
    np.testing.assert_allclose(np.asarray(ax.lines[-2].get_ydata(), float), profile.mass * 20)
    assert profile.plot(ax) is ax
    curve = Profile(np.array([-1.0, 0.5]), kind="signed").plot()
    np.testing.assert_array_equal(curve.lines[0].get_ydata(), [-1.0, 0.5])
    pyplot.close("all")


def test_unlike_lengths_are_compared_by_share_and_only_when_asked():
    long = Profile.from_samples(np.random.default_rng(2).random((6, 30)))
    short = Profile.from_weights(np.arange(1.0, 13.0))
    with pytest.raises(InvalidValueError, match=r"p: expected 30 positions .*got 12; by_share=True"):
        posbias.compare(short, long)
    found = posbias.compare(short, long, by_share=True)
    assert found.shares == 12
    expected = posbias.compare(
        short, Profile.from_samples(at_shares(np.asarray(long.samples), 12, total=True))
    )
    for name, score in vars(expected.agreements["p"]).items():
        assert getattr(found.agreements["p"], name).value == pytest.approx(score.value, rel=1e-12), name
    assert expected.shares is None
    assert "at 12 shares of contexts of unlike length" in repr(found)
    # of one length nothing changes
    same, plain = posbias.compare(long, long, by_share=True), posbias.compare(long, long)
    assert (same.shares, same.agreements) == (None, plain.agreements)
    # the finer of two is brought to the coarser, whichever is the reference
    assert posbias.compare(long, short, by_share=True).reference.tokens == 12


def test_a_comparison_shows_draws_and_tabulates_itself():
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib import pyplot

    measured = Profile.from_samples(np.random.default_rng(3).random((8, 20)))
    predictions = {
        f"p{number}": Profile.from_weights(np.arange(1.0, 21.0) ** number) for number in range(1, 8)
    }
    found = posbias.compare_all(predictions, measured)
    lines = repr(found).splitlines()
    assert len(lines) == 9
    assert lines[0] == "Comparison with a reference of 8 prompts at 20 positions"
    assert lines[-1].endswith("(and 1 more profiles)")
    frame = found.to_dataframe()
    assert list(frame.index[:9]) == [*predictions, "uniform", "recency_only"]
    assert set(frame["role"]) == {"profile", "baseline", "noise"}
    first = found.agreements["p1"].spearman
    assert first.interval is not None
    assert tuple(frame.loc["p1", ["spearman", "spearman_low", "spearman_high"]]) == (
        first.value,
        *first.interval,
    )
    few = dict(list(predictions.items())[:5])
    ax = posbias.compare_all(few, measured).plot()
    assert [str(line.get_label()).split(":")[0] for line in ax.lines] == ["reference", *few]
    np.testing.assert_allclose(np.asarray(ax.lines[1].get_ydata(), float), predictions["p1"].mass * 20)
    assert len({(line.get_color(), line.get_marker()) for line in ax.lines}) == 6
    rates = Profile(np.linspace(0, 1, 20), kind="rate")
    posbias.compare(rates, measured).plot()
    pyplot.close("all")


def test_an_architecture_says_what_is_known_of_it():
    window = posbias.Layer(heads=4, mask=posbias.SlidingWindow(8), positional=posbias.ALiBi())
    mixed = posbias.Architecture(4, (window, posbias.Layer(heads=4)), name="mixed")
    assert str(mixed).splitlines() == [
        "Architecture mixed: 4 layers of 4 heads",
        "mask: SlidingWindow, Causal",
        "positional: ALiBi, NoPE",
        "λ: 0.0308 to 0.137 (TrainedMedian)",
        "not known: λ",
    ]
    assert "λ: 0.2 (ConstantMixing)" in str(posbias.Architecture(2, mixing=posbias.ConstantMixing(0.2)))
