"""Orders of documents: search against all permutations, worth against its definition, gains against noise."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from readers import rates
from refused import refused

from posbias.ordering import STRATEGIES, order
from posbias.ordering.search import Slots, at_all_places, best_order, most, swapped, worths
from posbias.profiles.places import Places
from posbias.profiles.profile import Profile, uniform

numbers = st.floats(0.0, 1.0)


def of_places(samples, about):
    """Retrieval by place, whose samples are its trials; `about`: the job, and the prompts' tokens."""
    depth, tokens = np.arange(float(samples.shape[1])), about.get("tokens", float("nan"))
    return Places({"accuracy": samples}, depth, job=about.get("job", {}), length=tokens).profile()


@st.composite
def cases(draw, documents: int = 6):
    """A profile over tokens or places, documents with scores and lengths, something before and after."""
    positions = draw(st.integers(2, 9))
    curve = np.array(draw(st.lists(numbers, min_size=positions, max_size=positions))) + 1e-3
    count = draw(st.integers(1, documents))
    scores = np.array(draw(st.lists(numbers, min_size=count, max_size=count))) + 1e-3
    lengths = np.array(draw(st.lists(st.floats(0.5, 9.0), min_size=count, max_size=count)))
    return curve, draw(st.booleans()), scores, lengths, draw(st.floats(0, 5)), draw(st.floats(0, 5))


def curve_as(curve: np.ndarray, over_tokens: bool) -> Profile:
    """The curve as a mass, or as a rate."""
    if over_tokens:
        return Profile.from_weights(curve)
    return Profile(curve / curve.max(), kind="rate", measures="accuracy")


def defined(profile: Profile, scores, lengths, prefix, suffix, permutation) -> float:
    """The worth of an order, document by document, from the definition alone."""
    levels = profile.mass * profile.tokens if profile.kind == "mass" else profile.mass
    front, behind = (prefix, suffix) if profile.kind == "mass" else (0.0, 0.0)
    whole, before, worth = front + lengths.sum() + behind, front, 0.0
    borders = np.arange(profile.tokens + 1) / profile.tokens
    for document in permutation:
        start, end = before / whole, (before + lengths[document]) / whole
        shared = np.minimum(end, borders[1:]) - np.maximum(start, borders[:-1])
        place = (levels * np.clip(shared, 0, None)).sum() / (end - start)
        worth += scores[document] / scores.sum() * place
        before += lengths[document]
    return worth


@given(cases())
def test_the_best_of_all_permutations_is_found(case):
    curve, over_tokens, scores, lengths, prefix, suffix = case
    profile = curve_as(curve, over_tokens)
    found = order(len(scores), scores, lengths, profile=profile, prefix=prefix, suffix=suffix)
    all_of_them = [
        defined(profile, scores, lengths, prefix, suffix, one)
        for one in itertools.permutations(range(len(scores)))
    ]
    assert found.worth == pytest.approx(max(all_of_them), rel=1e-9)
    assert defined(profile, scores, lengths, prefix, suffix, found.permutation) == pytest.approx(
        found.worth, rel=1e-9
    )
    assert found.loss == 0.0


@given(cases())
def test_no_order_is_worth_more_than_the_bound_and_swaps_stay_below_it(case):
    curve, over_tokens, scores, lengths, prefix, suffix = case
    profile = curve_as(curve, over_tokens)
    slots, weights = Slots(profile, lengths.sum(), prefix, suffix), scores / scores.sum()
    best = best_order(slots, profile.mass, weights, lengths)
    bound = most(slots, profile.mass, weights, lengths)
    assert bound >= best.worth - 1e-9
    order_found = swapped(list(range(len(scores))), slots, profile.mass, weights, lengths)
    worth = worths(slots, profile.mass, weights, lengths, [order_found, range(len(scores))])
    assert worth[1] - 1e-12 <= worth[0] <= best.worth + 1e-9


@given(cases(), st.integers(0, 5))
def test_worth_is_linear_in_the_profile(case, place):
    curve, over_tokens, scores, lengths, prefix, suffix = case
    profile = curve_as(curve, over_tokens)
    slots = Slots(profile, lengths.sum(), prefix, suffix)
    document = place % len(scores)
    offset = float(lengths[:document].sum())
    row = slots.weights(offset, float(lengths[document]), profile.tokens)
    plain = slots.worth(profile.mass)(np.array([offset]), lengths[document : document + 1])[0]
    assert row @ slots.levels(profile.mass) == pytest.approx(plain, rel=1e-9, abs=1e-12)


def test_a_gain_that_is_there_is_found_and_its_interval_holds_it():
    curve = [0.8, 0.4, 0.3, 0.4, 0.9]
    scores = [0.1, 0.1, 0.6, 0.1, 0.1]
    inside = 0
    for seed in range(40):
        found = order(5, scores, profile=rates(curve, 200, seed))
        assert found.verdict == "reorder"
        assert found.permutation[4] == 2
        low, high = found.gains["as given"].interval
        inside += low <= 0.5 * (0.9 - 0.3) <= high
    # the interval is of the mean of two orders, each the best of its half: here both the same
    assert inside >= 33


def test_without_a_bias_hardly_ever_a_gain_is_found():
    verdicts = [order(5, [5, 1, 3, 2, 4], profile=rates([0.5] * 5, 100, seed)).verdict for seed in range(100)]
    # one-sided 2.5 %, so 2.5 expected; 8 is beyond in less than one of 300
    assert verdicts.count("reorder") <= 8


def test_a_usual_order_that_is_surely_better_is_named():
    """Of few trials of a U, whose best order is the best at both ends, chance finds a worse one."""
    curve = 0.95 - 0.6 * (1 - abs(np.linspace(-1, 1, 10)))
    weights, named, lost = 1 / np.arange(1, 11), [], []
    for seed in range(20):
        profile = rates(curve.tolist(), 64, seed)
        found = order(10, weights, profile=profile)
        if found.instead:
            named += [found.instead[0]]
            assert found.verdict == "reorder"
            assert found.recommended == tuple(STRATEGIES[found.instead[0]](weights)) != found.permutation
            assert any(one.startswith(f"{found.instead[0]} is recommended") for one in found.warnings)
        for name, strategy in STRATEGIES.items() if found.instead else ():
            lead = weights[list(found.recommended)] - weights[strategy(weights)]
            each = profile.samples @ lead / weights.sum()
            assert found.gains[name].value == pytest.approx(each.mean(), abs=1e-12)
            assert found.gains[name].se == pytest.approx(each.std(ddof=1) / 8, abs=1e-12)
        lost.append((weights[list(found.permutation)] - weights[list(found.recommended)]) @ curve)
    assert set(named) == {"both ends"}
    assert np.mean(lost) < 0, "the recommended order is truly worth more"


def test_what_the_profile_was_not_measured_at_is_counted():
    """Another number of documents, or prompts that are much longer or shorter, where lengths are tokens."""
    hits = np.random.default_rng(0).integers(0, 2, size=(40, 4)).astype(float)

    def beyond(documents, lengths=None, job=None, **more):
        about = {"tokens": 100} if job is None else {"job": job}
        found = order(documents, [1] * documents, lengths, profile=of_places(hits, about), **more)
        return len(found.extrapolated), len(found.warnings)

    assert beyond(4, [25.0] * 4) == (0, 0)
    assert beyond(5, [20.0] * 5) == (1, 0)
    for length in (250.0, 5.0):
        assert beyond(4, [length] * 4) == (1, 0)
        assert beyond(4, [length] * 4, in_tokens=False) == (length < 25, 0)
    # four places of twenty documents are of twenty documents
    assert beyond(20, job={"pairs": 20}) == (1, 0)
    assert beyond(4, job={"pairs": 20}) == (2, 0)
    assert beyond(4, job={"task": "documents"}) == (0, 1)
    assert beyond(4, job={"task": "documents", "documents": [6, 8]}) == (0, 1)
    assert beyond(8, job={"task": "documents", "documents": [8, 8]}) == (1, 0)
    assert beyond(5, job={"task": "documents", "documents": [8, 8]}) == (2, 0)


def test_a_gain_that_rests_on_what_lengths_are_worth_is_not_known():
    """Three short documents fit into the stretch of the last place, where a bias that goes by place finds one."""
    profile = of_places(rates([0.4] * 9 + [0.9], 300).samples, {"tokens": 3000})
    scores, lengths = [0.15] * 3 + [0.05] * 6 + [0.2], [20.0] * 3 + [420.0] * 7
    packed = order(10, scores, lengths, profile=profile)
    assert packed.gains["as given"].interval[0] > 0
    assert (packed.verdict, len(packed.extrapolated)) == ("not known", 1)
    assert "is -0.0" in packed.extrapolated[0], "with a place for each it loses"
    assert packed.recommended == tuple(range(10))
    # the best document first, of any length: the last place is better either way
    both = order(10, [0.9] + [0.1] * 9, [420.0] * 9 + [20.0], profile=profile)
    assert (both.verdict, both.recommended[-1]) == ("reorder", 0)
    assert any("lengths differ" in one for one in both.warnings)
    # documents of about one length
    assert order(10, scores, [300.0 + k for k in range(10)], profile=profile).warnings == ()


def test_a_good_order_is_kept_and_gains_elsewhere_are_conditional():
    """Primacy with the best first; of documents that were not measured no gain stands without its condition."""
    for seed, prompts in ((0, 200), (1, 60)):
        curve = rates([0.9, 0.7, 0.6, 0.5, 0.4], prompts, seed)
        kept = str(order(5, [0.9, 0.7, 0.5, 0.3, 0.2], profile=curve)).split("\n")[0]
        assert kept.startswith("keep the order as it is: better than best last")
        assert "would tell" not in kept
    other = str(order(3, [3, 2, 1], profile=rates([0.4, 0.3, 0.3, 0.4, 0.9], 200))).split("\n")
    assert other[0].startswith("not known")
    said = "if these documents were like those measured, best by the profile's means: 1, 2, 0, counted from 0"
    assert other[1] == said


@pytest.mark.parametrize("trials", [6, 200])
def test_a_gain_that_all_prompts_agree_on_is_as_sure_as_their_number(trials):
    """The first place finds all, the others nothing: no prompt differs, and other prompts may."""
    profile = of_places(np.tile([1.0, 0.0, 0.0], (trials, 1)), {"job": {"pairs": 3}})
    gain = order(3, [0.1, 0.2, 0.9], profile=profile).gains["as given"]
    assert gain.value == pytest.approx(0.8 / 1.2)
    # the halves are judged apart: each may hide so many others, of which one loses 2 · 0.8/1.2 at most
    most = 2 * gain.value * (1 - 0.05 ** (2 / trials))
    assert 0 < gain.value - gain.interval[0] <= most
    assert gain.interval[0] > 0


@given(st.integers(2, 7), st.integers(0, 9), st.integers(0, 99))
def test_places_between_those_asked_at_are_on_a_line(asked, more, seed):
    hits = np.random.default_rng(seed).integers(0, 2, size=(12, asked)).astype(float)
    profile = of_places(hits, {"job": {"pairs": asked + more}})
    whole = at_all_places(profile)
    assert whole.samples is not None
    slots = [round(k * (asked + more - 1) / (asked - 1)) for k in range(asked)]
    assert whole.samples.shape == (12, asked + more)
    assert np.allclose(whole.mass, whole.samples.mean(axis=0))
    for row, right in zip(whole.samples, hits, strict=True):
        for k, slot in enumerate(slots):
            assert row[slot] == pytest.approx(right[k])
            for between in range(slot + 1, slots[k + 1] if k + 1 < asked else 0):
                share = (between - slot) / (slots[k + 1] - slot)
                assert row[between] == pytest.approx((1 - share) * right[k] + share * right[k + 1])


@given(st.integers(2, 9), st.integers(0, 99), st.sampled_from([None, 0.1, 1.0, 10.0]))
def test_no_other_verdict_than_not_known_on_documents_that_were_not_measured(documents, seed, stretch):
    measured = rates([0.9, 0.2, 0.2, 0.2, 0.9])
    profile = of_places(measured.samples, {"tokens": 100})
    scores = np.random.default_rng(seed).uniform(0.1, 1, documents)
    lengths = None if stretch is None else [100 * stretch / documents] * documents
    found = order(documents, scores, lengths, profile=profile)
    assert bool(found.extrapolated) == (documents != 5 or stretch in (0.1, 10.0))
    gain = found.gains["as given"]
    if not found.extrapolated:
        assert found.verdict == ("reorder" if gain.tells() and gain.interval[1] > 0.01 else found.verdict)
        return
    assert found.verdict == "not known"
    # what tells the gain where it was measured does so here; else more does
    assert found.prompts_to_tell == 300 if gain.tells() else (found.prompts_to_tell or 301) > 300


def test_a_hundred_documents_come_near_the_bound_and_those_of_one_length_reach_it():
    random = np.random.default_rng(0)
    curve, scores = random.uniform(0.1, 1.0, 40), random.uniform(0.1, 1.0, 40)
    found = order(40, scores, profile=Profile.from_weights(curve))
    assert found.worth == pytest.approx(np.sort(scores / scores.sum()) @ np.sort(curve / curve.sum() * 40))
    assert found.loss == 0.0
    u = Profile.from_weights(1.0 + 4.0 * ((np.arange(64) + 0.5) / 64 - 0.5) ** 2)
    scores, lengths = random.gamma(0.5, size=100), random.uniform(50, 400, 100)
    found = order(100, scores, lengths, profile=u, prefix=80, suffix=40)
    assert sorted(found.permutation) == list(range(100))
    assert found.worth > 1.0
    assert found.loss < 0.1 * (found.worth - 1.0)


def test_the_usual_orders_are_what_they_are_called():
    scores = np.array([0.2, 0.9, 0.5, 0.7, 0.1])
    assert {name: strategy(scores) for name, strategy in STRATEGIES.items()} == {
        "as given": [0, 1, 2, 3, 4],
        "best first": [1, 3, 2, 0, 4],
        "best last": [4, 0, 2, 3, 1],
        "both ends": [1, 2, 4, 0, 3],
    }


def test_a_flat_profile_leaves_the_order():
    found = order(5, [1, 5, 2, 4, 3], [3, 1, 4, 1, 5], profile=uniform(64))
    assert (found.permutation, found.verdict) == ((0, 1, 2, 3, 4), "no difference")


def test_what_cannot_be_right_is_named():
    def call(**wrong):
        return lambda: order(**{"documents": 2, "scores": [1.0, 2.0], "profile": uniform(8)} | wrong)

    refused("documents", call(documents=0, scores=[]))
    refused("scores", *(call(scores=wrong) for wrong in ([1.0], [1.0, -1.0], [0.0, 0.0])))
    refused("lengths", call(lengths=[1.0, 0.0]))
    refused("suffix", call(suffix=float("nan")))
