"""Effects of slots and labels on choices: against plain references, and planted choosers in many draws."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import scipy.optimize
from scipy import stats

from posbias.choice.answer import ChoiceAnswer
from posbias.choice.effects import LEAST_SETS, ChoiceEffects
from posbias.choice.orders import labels_of, orders_of, williams
from posbias.core.errors import InvalidValueError
from posbias.profiles.decisions import REFUSED, TIE, Decisions, load_decisions, save_decisions
from posbias.profiles.gaps import ENDS
from posbias.reports.choices import headline

SLOTS = {
    2: np.array([0.4, -0.4]),
    3: np.array([0.5, -0.3, -0.2]),
    4: np.array([0.6, -0.1, -0.3, -0.2]),
    10: np.linspace(0.45, -0.45, 10),
}


def planted(
    seed,
    slots,
    *,
    sets=40,
    items_a_set=1,
    labels=None,
    contents=1.0,
    by_set=0.0,
    noise=None,
    ties=0.0,
    deterministic=False,
    interaction=0.0,
    orders=None,
):
    """Decisions of a chooser of known effects; with `noise`, of its scores."""
    random, k = np.random.default_rng(seed), len(slots)
    rows, options = [], []
    for which in range(sets):
        own = slots + by_set * random.standard_normal(k)
        for _ in range(items_a_set):
            content = contents * random.standard_normal(k)
            shown = labels_of(k, len(options))
            for order in orders_of(k, orders):
                odds = own + content[order] * (1 + interaction * own)
                odds = odds + (0 if labels is None else labels[shown])
                if noise is not None:
                    odds = odds + noise * random.standard_normal(k)
                drawn = odds if noise is not None or deterministic else odds + random.gumbel(size=k)
                chosen = TIE if random.random() < ties else int(drawn.argmax())
                rows.append((len(options), order, chosen, shown, odds - np.log(np.exp(odds).sum())))
            options.append([f"set {which} option {number}" for number in range(k)])
    item, order, chosen, shown, scores = map(np.array, zip(*rows, strict=True))
    more = {} if labels is None else {"labels": shown, "label_names": tuple("ABCDEFGHIJ"[:k])}
    return Decisions(item, order, chosen, options, scores=None if noise is None else scores, **more)


# --- plain references -----------------------------------------------------------------------------------------


def test_of_two_options_the_effect_is_half_the_log_ratio_of_switches():
    effects = ChoiceEffects(planted(0, SLOTS[2], sets=60))
    held = effects.decisions
    both = held.chosen.reshape(-1, 2)
    first, last = ((both == slot).all(axis=1).sum() for slot in (0, 1))
    gap = effects.gaps[ENDS]
    assert gap.value == pytest.approx(0.5 * math.log(first / last), rel=1e-9)
    assert effects.slots[0].value == pytest.approx(gap.value / 2, rel=1e-9)
    switches = first + last
    # each leaves-one-out estimate in closed form, to first order
    share = first / switches
    pulls = np.where(np.arange(switches) < first, 1 - share, -share) / ((switches - 1) * share * (1 - share))
    by_hand = 0.5 * math.sqrt((switches - 1) / switches * (pulls**2).sum() * ((switches - 1) / switches) ** 2)
    assert gap.se == pytest.approx(by_hand, rel=0.05)


@pytest.mark.parametrize("k", [3, 4])
def test_answers_maximise_the_product_over_all_pairs(k):
    held = planted(3, SLOTS[k], sets=12, labels=SLOTS[k][::-1].copy())
    effects = ChoiceEffects(held)
    pairs = [
        (s, t)
        for s, t in itertools.combinations(range(len(held.item)), 2)
        if held.item[s] == held.item[t] and held.option[s] != held.option[t]
    ]

    def loss(free):
        slot, label = (np.append(part, -part.sum()) for part in (free[: k - 1], free[k - 1 :]))

        def odds(row, option):
            place = list(held.order[row]).index(option)
            return slot[place] + label[held.labels[row, place]]

        total = 0.0
        for s, t in pairs:
            a, b = held.option[s], held.option[t]
            total += np.logaddexp(0, -(odds(s, a) - odds(s, b) - odds(t, a) + odds(t, b)))
        return total

    best = scipy.optimize.minimize(loss, np.zeros(2 * (k - 1)), tol=1e-12).x
    assert [one.value for one in effects.slots][:-1] == pytest.approx(best[: k - 1], abs=1e-5)
    assert [one.value for one in effects.labels.values()][:-1] == pytest.approx(best[k - 1 :], abs=1e-5)


def test_scores_are_least_squares_with_a_dummy_for_every_decision_and_option():
    held = planted(1, SLOTS[3], sets=8, noise=0.5)
    y, x, sets = [], [], []
    for row, (item, order) in enumerate(zip(held.item, held.order, strict=True)):
        for slot, option in enumerate(order):
            line = np.zeros(3 + len(held.item) + 3 * len(held.options))
            line[slot] = line[3 + row] = line[3 + len(held.item) + 3 * item + option] = 1
            x.append(line)
            y.append(held.scores[row, slot])
            sets.append(item)
    x, y, sets = np.array(x), np.array(y), np.array(sets)
    free = np.linalg.lstsq(x, y, rcond=None)[0][:3]
    effects = ChoiceEffects(held)
    assert [one.value for one in effects.slots] == pytest.approx(free - free.mean(), abs=1e-10)
    # each set's own estimate: in a balanced design the effect is their mean, and so is its error
    alone = []
    for which in range(8):
        some = sets == which
        own = np.linalg.lstsq(x[some], y[some], rcond=None)[0][:3]
        alone.append(own[0] - own[2])
    gap = effects.gaps[ENDS]
    assert gap.se == pytest.approx(np.std(alone, ddof=1) / math.sqrt(8), rel=1e-9)
    assert gap.freedom == 7


@pytest.mark.parametrize("k", [2, 3, 4, 5, 6, 7, 10])
def test_a_williams_square_balances_slots_and_what_stands_before(k):
    square = williams(k)
    assert len(square) == (k if k % 2 == 0 else 2 * k)
    assert {tuple(np.bincount(column, minlength=k)) for column in square.T} == {(len(square) // k,) * k}
    before = np.zeros((k, k), dtype=int)
    np.add.at(before, (square[:, :-1].ravel(), square[:, 1:].ravel()), 1)
    assert {*before[~np.eye(k, dtype=bool)]} == {len(square) // k}
    assert len(orders_of(k)) == (math.factorial(k) if k <= 4 else len(square))


# --- what is said ---------------------------------------------------------------------------------------------


def test_where_all_switches_go_one_way_the_effect_is_a_bound():
    held = planted(0, np.array([3.0, -3.0]), sets=30, contents=1.5)
    both = held.chosen.reshape(-1, 2)
    switches = int((both == 0).all(axis=1).sum())
    assert switches > 10
    assert not (both == 1).all(axis=1).any()
    gap = ChoiceEffects(held).gaps[ENDS]
    share = 0.025 ** (1 / switches)
    assert gap.value == math.inf
    assert gap.interval == pytest.approx((0.5 * math.log(share / (1 - share)), math.inf))
    assert gap.sign == 1
    # the chooser that prefers the last slot has the bound on the other side
    turned = ChoiceEffects(Decisions(held.item, held.order[:, ::-1], 1 - held.chosen, held.options))
    assert turned.gaps[ENDS].interval == pytest.approx((-math.inf, -gap.interval[0]))


def test_where_labels_are_crossed_the_bound_rests_on_sets_in_pairs():
    held = planted(0, np.array([4.0, -4.0]), sets=25, labels=np.zeros(2), contents=0.1)
    gap = ChoiceEffects(held).gaps[ENDS]
    # 13 sets have label A first, 12 have B first
    share = 0.025 ** (1 / 24)
    assert gap.interval == pytest.approx((0.5 * math.log(share / (1 - share)), math.inf))
    without = Decisions(held.item, held.order, held.chosen, held.options)
    assert gap.interval[0] < ChoiceEffects(without).gaps[ENDS].interval[0]


def test_where_one_labelling_alone_goes_one_way_the_bound_is_of_both_kinds_of_sets():
    """Most judges that favour a slot, with few sets: the likelihood has no maximum, and their sign is sure."""
    found = [planted(seed, np.array([0.75, -0.75]), labels=np.zeros(2), contents=0.5) for seed in range(60)]
    gaps = [ChoiceEffects(held).gaps[ENDS] for held in found]
    bounds = [(held, gap) for held, gap in zip(found, gaps, strict=True) if math.isinf(gap.value)]
    assert len(bounds) > 30
    assert all(gap.value > 0 and gap.interval[0] < 1.5 for _, gap in bounds)
    assert sum(math.isnan(gap.value) for gap in gaps) < 3
    mixed = 0
    for held, gap in bounds:
        both = held.chosen.reshape(-1, 2)
        kinds = [both[kind::2][both[kind::2, 0] == both[kind::2, 1], 0] for kind in (0, 1)]
        if any((kind == 1).any() for kind in kinds):
            lows = [stats.beta.ppf(0.0125, (kind == 0).sum(), (kind == 1).sum() + 1) for kind in kinds]
            assert gap.interval[0] == pytest.approx(np.mean([math.log(p / (1 - p)) / 2 for p in lows]))
            mixed += 1
    assert mixed > 10


def test_labels_that_were_not_crossed_are_one_effect_with_slots():
    held = planted(4, SLOTS[3])
    labels = np.broadcast_to(np.arange(3), held.order.shape)
    together = ChoiceEffects(dataclasses.replace(held, labels=labels, label_names=("A", "B", "C")))
    assert together.together
    assert together.labels == {}
    assert together.slots == ChoiceEffects(held).slots


@pytest.mark.parametrize("slot", [0, 3])
def test_the_sign_of_an_effect_is_that_of_the_slot_which_is_chosen_more(slot):
    slots = np.full(4, -0.4)
    slots[slot] = 1.2
    for noise in (None, 0.3):
        effects = ChoiceEffects(planted(5, slots, noise=noise))
        assert int(np.argmax([one.value for one in effects.slots])) == slot
        assert effects.slots[slot].sign == effects.points[slot].sign == 1
        assert effects.gaps[ENDS].sign == (1 if slot == 0 else -1)
        assert effects.slot_test.p < 1e-3
        assert effects.permutation_test().p == 1 / 2000


def test_items_that_share_an_option_are_one_set_and_few_sets_have_no_interval():
    held = planted(2, SLOTS[4], sets=LEAST_SETS - 1, items_a_set=10, noise=0.3)
    effects = ChoiceEffects(held)
    assert effects.sets == LEAST_SETS - 1
    assert math.isnan(effects.gaps[ENDS].se)
    assert effects.gaps[ENDS].sign == 0
    assert math.isnan(effects.slot_test.p)
    chained = [["a", "b"], ["b", "c"], ["d", "e"]]
    order = [[0, 1], [1, 0]] * 3
    one = Decisions(np.repeat([0, 1, 2], 2), np.array(order), np.zeros(6, dtype=int), chained)
    assert one.sets.tolist() == [0, 0, 1]


def test_flips_stand_beside_their_floor_and_what_was_declined_is_counted():
    order = [[0, 1], [1, 0], [0, 1]] * 6
    # the same order again: the same choice; the other order: another one
    chosen = [0, 0, 0, 1, 1, 1, 0, 1, 0, 0, 0, 0, TIE, 0, TIE, 0, REFUSED, 0]
    options = [[f"{item}a", f"{item}b"] for item in range(6)]
    effects = ChoiceEffects(Decisions(np.repeat(np.arange(6), 3), np.array(order), np.array(chosen), options))
    other, again = effects.flips
    assert other.value == pytest.approx(5 / 6)
    assert again.value == 0
    assert effects.declined == {"ties": 2, "refusals": 1}


def test_decisions_are_kept_as_they_are(tmp_path):
    held = planted(2, SLOTS[3], sets=6, labels=SLOTS[3], noise=0.2)
    again = load_decisions(save_decisions(held, tmp_path / "decisions.json"))
    assert again.as_dict() == held.as_dict()
    assert [*map(str, ChoiceEffects(again).slots)] == [*map(str, ChoiceEffects(held).slots)]


@pytest.mark.parametrize(
    ("order", "options", "said"),
    [
        ([[0, 1], [0, 1]], [["a", "b"]], "orders that do not cross"),
        ([[0, 0], [1, 0]], [["a", "b"]], "every option of an item once"),
        ([[0, 1], [1, 0]], [["a", "a"]], "2 options that differ"),
        ([[0], [0]], [["a"]], "two or more"),
    ],
)
def test_what_cannot_be_decided_is_one_line(order, options, said):
    with pytest.raises(InvalidValueError, match=said) as error:
        ChoiceEffects(Decisions(np.zeros(2, dtype=int), np.array(order), np.zeros(2, dtype=int), options))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("slots", "labels", "sets", "said"),
    [
        ([1.5, -0.5, -0.5, -0.5], None, 30, "What stands first is favoured"),
        ([-0.5, -0.5, -0.5, 1.5], None, 30, "What stands last is favoured"),
        ([0.0, 0.0, 0.0, 0.0], None, 30, "No effect of order is shown"),
        ([0.0] * 4, [0.0] * 4, 30, "No effect of order is shown"),
        ([0.0] * 4, [1.5, -0.5, -0.5, -0.5], 40, "Label A is favoured; no effect of slots is shown"),
        (
            *([0.0] * 4, [3.0, -1.0, -1.0, -1.0], 5),
            "Order moves choices; no slot is surely favoured; label A is favoured",
        ),
    ],
)
def test_a_headline_names_slot_and_label_where_their_effects_are_sure(slots, labels, sets, said):
    held = planted(4, np.array(slots), sets=sets, labels=None if labels is None else np.array(labels))
    assert headline({"judge": ChoiceAnswer(held)}) == said


# --- planted choosers -----------------------------------------------------------------------------------------

DRAWS = 2000
PLANTED = {
    "two, none": (np.zeros(2), {"sets": 60}),
    "two": (SLOTS[2], {"sets": 60}),
    "two, ties": (SLOTS[2], {"sets": 80, "ties": 0.1}),
    "three": (SLOTS[3], {}),
    "four, labels": (SLOTS[4], {"sets": 24, "labels": np.array([0.3, 0.0, -0.1, -0.2])}),
    "four, shared contents": (SLOTS[4], {"sets": 20, "items_a_set": 4, "by_set": 0.4, "orders": 4}),
    "ten": (SLOTS[10], {"sets": 20}),
    "four, none, scores": (np.zeros(4), {"sets": 12, "noise": 0.5}),
    "four, labels, scores": (SLOTS[4], {"sets": 8, "noise": 0.5, "labels": np.array([0.3, 0.0, -0.1, -0.2])}),
    "four, shared contents, scores": (
        SLOTS[4],
        {"sets": 6, "items_a_set": 4, "by_set": 0.4, "noise": 0.5, "orders": 4},
    ),
    "ten, scores": (SLOTS[10], {"sets": 6, "noise": 0.5}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_intervals_hold_what_was_planted(name, capsys):
    """Of first − last: 95 ± 1.7 % of scores, 93.3 % at least of answers; a null is rejected in 6.7 % at most.

    The bounds are of 2,000 draws: three standard errors of Monte Carlo and more.
    """
    slots, how = PLANTED[name]
    target, held, rejected, lacks = slots[0] - slots[-1], [], [], []
    for seed in range(DRAWS):
        effects = ChoiceEffects(planted([58, seed], slots, **how))
        low, high = effects.gaps[ENDS].interval
        held.append(low <= target <= high)
        rejected.append(effects.slot_test.p < 0.05)
        lacks.append(effects.lack_of_fit.p < 0.05)
    coverage, false, misfit = map(np.mean, (held, rejected, lacks))
    with capsys.disabled():
        print(f"\n{name}: coverage {coverage:.4f}, slots {false:.4f}, slot × content {misfit:.4f}")
    least, most = (0.933, 0.967) if "scores" in name else (0.933, 1.0)
    assert least <= coverage <= most
    assert misfit <= 0.067
    if "none" in name:
        assert false <= 0.067


@pytest.mark.slow
def test_points_of_a_judge_that_never_wavers_hold_their_target():
    """A deterministic judge: what an interval is asked to hold is the share over all contents."""
    slots = SLOTS[2]
    many = [planted([1, seed], slots, sets=2000, deterministic=True) for seed in range(20)]
    share = [ChoiceEffects(one).points[0].value for one in many]
    held = []
    for seed in range(DRAWS):
        low, high = ChoiceEffects(planted([2, seed], slots, sets=60, deterministic=True)).points[0].interval
        held.append(low <= np.mean(share) <= high)
    assert 0.933 <= np.mean(held) <= 0.967


@pytest.mark.slow
def test_permutations_reject_a_true_null_as_often_as_they_say():
    rejected = [
        ChoiceEffects(planted([3, seed], np.zeros(3), sets=15)).permutation_test(seed).p
        for seed in range(300)
    ]
    assert np.mean(np.array(rejected) < 0.05) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)


def test_decisions_that_are_written_twice_are_no_more_evidence():
    once = planted(1, np.array([0.3, 0.0, -0.3]), sets=15)
    rows = {name: np.repeat(getattr(once, name), 2, axis=0) for name in ("item", "order", "chosen")}
    labels = None if once.labels is None else np.repeat(once.labels, 2, axis=0)
    twice = dataclasses.replace(once, **rows, labels=labels)
    one, two = (ChoiceEffects(held).permutation_test().p for held in (once, twice))
    assert two == pytest.approx(one, abs=0.02)


def test_an_effect_that_grows_with_how_often_an_option_is_chosen_is_found():
    assert ChoiceEffects(planted(1, SLOTS[4], sets=12, noise=0.5, interaction=0.6)).lack_of_fit.p < 0.01
    assert ChoiceEffects(planted(1, SLOTS[4], sets=60, interaction=1.0)).lack_of_fit.p < 0.05
    tiny = planted(1, 1e-3 * SLOTS[4], sets=12, noise=1e-6, interaction=0.6)
    assert math.isnan(ChoiceEffects(tiny).lack_of_fit.p)  # of effects that print as .00


def test_a_slot_free_win_rate_is_that_of_a_judge_without_effects_of_order():
    random, content, slot, items = np.random.default_rng(0), 0.8, 1.5, 4000
    chance = 1 / (1 + np.exp(-np.array([content + slot, content - slot])))
    wins = random.random((items, 2)) < chance
    decisions = Decisions(
        np.repeat(np.arange(items), 2),
        np.tile([[0, 1], [1, 0]], (items, 1)),
        np.where(wins, [0, 1], [1, 0]).ravel(),
        [[f"new {item}", f"old {item}"] for item in range(items)],
        sides=[("new", "old")] * items,
    )
    answer = ChoiceAnswer(decisions)
    new, old = answer.wins.values()
    assert new.slot_free.value == pytest.approx(1 / (1 + math.exp(-content)), abs=3 * new.slot_free.se)
    assert new.balanced.value == pytest.approx(chance.mean(), abs=3 * new.balanced.se)
    assert old.slot_free.value == pytest.approx(1 - new.slot_free.value)
    assert answer.changed == (int((wins[:, 0] != wins[:, 1]).sum()), items)
    # the jackknife's error, against that over twentieths of the items
    parts = [
        ChoiceAnswer(dataclasses.replace(decisions, **part(decisions, k))).wins["new"] for k in range(20)
    ]
    apart = np.std([one.slot_free.value for one in parts], ddof=1) / math.sqrt(20)
    assert new.slot_free.se == pytest.approx(apart, rel=0.5)


def part(held, k):
    """A twentieth of decisions."""
    some = held.item % 20 == k
    return {name: getattr(held, name)[some] for name in ("item", "order", "chosen")}
