"""Claims on trained networks: the paper's pattern holds, its opposite fails, stages of training decide nothing;
gaps at equal accuracy or loss, and after as many iterations, of learning curves whose answer is known.
"""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
from trained_networks import PAIRED, as_published, depth_outcomes, gaps_of, outcome, pairs

import posbias_papers.wu2025.table as tables
from posbias.profiles.claims import LEAST
from posbias.theory.masks import Causal, Full
from posbias_papers.claims import judge
from posbias_papers.results import collect
from posbias_papers.study import UNTESTED
from posbias_papers.wu2025 import STUDIES, Setting, outcomes
from posbias_papers.wu2025.figures import at_equal, spared
from posbias_papers.wu2025.outcomes import PAIRS, record_line
from posbias_papers.wu2025.table import table

SCATTER = np.array([0, 0.001, -0.001])
"""By how much accuracies of three networks differ."""


def judged(name, outcomes):
    study = STUDIES[name]
    return {claim.id.removeprefix(f"wu2025/{name}/"): claim for claim in study.judged(study.table(outcomes))}


def verdicts(name, outcomes):
    return {number: claim.verdict for number, claim in judged(name, outcomes).items()}


def of_gaps(name, levels, **options):
    return verdicts(name, depth_outcomes(STUDIES[name], levels, **options))


@pytest.mark.parametrize("name", ["fig4", *PAIRED])
def test_the_papers_own_pattern_holds(name):
    found = of_gaps(name, as_published)
    assert {*found.values()} == {"holds"}, found


@pytest.mark.parametrize("name", PAIRED)
def test_networks_that_do_the_opposite_of_their_training_data_fail(name):
    assert of_gaps(name, lambda setting: pairs(*(-gap for gap in PAIRED[name])))["4"] == "fails"
    # none at all is no proof of the opposite: the text gives no least size
    assert of_gaps(name, lambda setting: pairs(0.0, 0.0, 0.0))["4"] == "undecided"


@pytest.mark.parametrize(
    ("name", "number", "levels"),
    [
        ("fig4", "2", lambda s: pairs(*[0.3 - 0.1 * s.depth] * 3)),
        ("fig4", "3", lambda s: pairs(*[0.1 * s.depth - 0.5 * (s.depth == 4)] * 3)),
        ("fig4", "4", lambda s: pairs(0.1, 0.2, 0.3)),
        ("fig4", "5", lambda s: pairs(0.1, 0.2, 0.3)),
        ("fig4", "6", lambda s: pairs(0.1, 0.2, 0.3)),
        ("fig4", "8", lambda s: pairs(0.1, 0.1, 0.1 * (s.positional != "none"))),
        ("fig4", "11", lambda s: pairs(0.2, 0.1, -0.1)),
        ("fig5", "2", lambda s: pairs(0.0, 0.1 * s.depth, 0.0)),
        ("fig5", "4", lambda s: pairs(-0.1, 0.1 * s.depth, 0.0)),
        ("fig6", "3", lambda s: pairs(*[0.3 * (s.mask == Full())] * 2, 0.0)),
        ("fig6", "5", lambda s: pairs(*PAIRED["fig3"])),
        ("fig3", "5", lambda s: pairs(*PAIRED["fig3"])),
        ("fig7", "5", lambda s: pairs(*PAIRED["fig7"])),
        ("fig8", "5", lambda s: pairs(*PAIRED["fig8"])),
        ("masks", "7", lambda s: pairs(0.0, -0.01 * getattr(s.mask, "width", 17), 0.0)),
    ],
)
def test_the_opposite_fails(name, number, levels):
    found = judged(name, depth_outcomes(STUDIES[name], levels))[number]
    open_ = (found.claim.provenance, found.claim.bar) == ("paper", "ours")
    assert (found.verdict, found.seen) == ("undecided" if open_ else "fails", False)


def test_residual_networks_turn_and_deep_rotary_ones_may_lose_the_middle():
    def bent(setting):
        lost = setting.depth == 10 and setting.positional == "rope"
        return pairs(0.2, 0.1, -0.1) if lost else as_published(setting)

    found = of_gaps("fig5", bent)
    assert {found[number] for number in ("2", "3", "4", "5", "7")} == {"holds"}


def test_gaps_are_compared_by_window_and_vocabularies_by_what_they_share():
    assert of_gaps("masks", lambda s: pairs(0.0, 0.02 * getattr(s.mask, "width", 17), 0.0)) == {"7": "holds"}

    def cells(level, accuracy):
        found = {}
        for cell in STUDIES["anisotropy"].cells:
            strength = 0.0 if cell.inputs == "gaussian_mixture" else cell.shared_direction
            gaps = gaps_of(pairs(*[level(cell, strength)] * 3))
            found[cell] = outcome(cell, gaps, accuracy=accuracy(strength) + SCATTER)
        return verdicts("anisotropy", found)

    assert {*cells(lambda c, s: 0.1 + 0.2 * s, lambda s: 0.7 - 0.2 * s).values()} == {"holds"}
    mixture = cells(lambda c, s: 0.1 + 0.2 * (c.inputs == "gaussian_mixture"), lambda s: 0.5 + 0.2 * s)
    # neither "within .05" nor a least difference is the text's
    assert mixture == {"1": "undecided", "2": "fails", "3": "undecided"}


# --- the middle --------------------------------------------------------------------------------------------


@functools.cache
def of_accuracy(accuracy):
    """Five networks without a gap, which have learnt or not."""
    flat = dict.fromkeys(PAIRS, np.zeros(5))
    return table({Setting(): outcome(Setting(), flat, accuracy=accuracy)}, [Setting()])


def middle(*levels, seed=0, noise=0.004, accuracy=0.6):
    """Whether a setting with such gaps is said to be spared."""
    rows = of_accuracy(accuracy).copy()
    for pair, gap in gaps_of(pairs(*levels), networks=5, noise=noise, seed=seed).items():
        rows[pair.replace("-", "_")] += gap
    (piece,) = spared(rows)
    return piece.verdict()


def test_a_cell_is_lost_in_the_middle_only_if_both_ends_are_ahead():
    assert middle(0.2, 0.1, -0.1) == "fails"
    for levels in ((0.2, 0.3, 0.1), (-0.2, -0.3, -0.1), (-0.2, 0.0, 0.2), (0.0, 0.0, 0.0)):
        assert middle(*levels) == "holds"
    assert middle(0.2, 0.1, -0.1, accuracy=0.05) == "undecided"


def test_a_middle_is_said_to_be_spared_or_lost_no_more_often_than_the_level():
    def share(kind, levels, runs=300):
        found = [middle(*levels, seed=run, noise=0.02) for run in range(runs)]
        return found.count(kind) / runs - 4 * math.sqrt(0.05 * 0.95 / runs)

    # both ends ahead by the least that counts: neither
    assert share("holds", (LEAST, 0.0, -LEAST)) < 0.05
    assert share("fails", (LEAST, 0.0, -LEAST)) < 0.05
    # one end surely ahead, the other not at all: spared
    assert share("fails", (0.3, 0.3, 0.0)) < 0.05


# --- sinks -------------------------------------------------------------------------------------------------


def sinks(name, level, share=0.3):
    flat = gaps_of(pairs(0.0, 0.0, 0.0))
    return {cell: outcome(cell, flat, sink=level(cell), share=share) for cell in STUDIES[name].cells}


@pytest.mark.parametrize("name", ["fig9", "fig10", "fig11", "fig12"])
def test_sinks_that_grow_hold_and_none_fails(name):
    grows = sinks(name, lambda s: 0.3 + 0.04 * getattr(s.mask, "width", 5))
    assert {*verdicts(name, grows).values()} == {"holds"}
    found = verdicts(name, sinks(name, lambda s: 0.05, share=0.0))
    # that there is no sink within each window holds then
    assert "holds" not in {verdict for number, verdict in found.items() if (name, number) != ("fig11", "5")}


def test_a_lead_that_training_does_not_add_to_is_no_emergence():
    ahead = sinks("fig9", lambda s: 0.3)
    before = {cell: replace(known, untrained=known.sinks) for cell, known in ahead.items()}
    assert [verdicts("fig9", one)["1"] for one in (ahead, before)] == ["holds", "undecided"]
    assert judged("fig9", before)["1"].seen is False


def test_what_tends_to_be_is_a_share_of_the_settings():
    grows = sinks("fig11", lambda s: 0.3 + 0.04 * s.mask.width * (-1 if s.residual else 1))
    claim = judged("fig11", grows)["1"]
    assert (claim.claim.strength, len(claim.evidence)) == ("hedged", 1)
    assert "1 of 2" in claim.evidence[0].where
    assert claim.verdict != "holds"


def test_a_share_of_the_settings_is_not_decided_by_some_of_them(monkeypatch):
    some = dict([*sinks("fig11", lambda s: 0.9 - 0.04 * s.mask.width, share=0.1).items()][:5])
    monkeypatch.setattr(tables, "records", lambda effort, cells: some)
    found = verdicts("fig11", some)
    assert "4" not in found
    assert found["2"] == "fails"


# --- how long networks were trained ------------------------------------------------------------------------


def at_effort(steps, networks=3, late=0.0, of=as_published):
    """The paper's pattern after `steps` iterations; curves change by `late` after the first two thirds."""
    curves = {name: np.zeros((networks, 4)) for name in (*PAIRS, "in_context_accuracy", "loss")}
    scatter = np.array([[0.0], [1e-3], [-1e-3]])[:networks]
    curves["first-last"] = 0.1 + np.array([0.0, 0.0, 0.0, late]) + scatter
    curves["iteration"] = steps * np.array([0.3, 0.5, 2 / 3, 1.0])
    return {
        cell: outcome(cell, gaps_of(of(cell), networks=networks), steps=steps, curves=curves)
        for cell in STUDIES["fig4"].cells
    }


def test_a_stage_of_training_decides_nothing_but_shows_something():
    found = judged("fig4", at_effort(2500))
    assert {(claim.verdict, claim.seen) for number, claim in found.items() if number in "1234"} == {
        ("undecided", True)
    }
    shrunk = judged("fig4", at_effort(2500, of=lambda s: pairs(*[0.3 / s.depth] * 3)))["2"]
    assert (shrunk.verdict, shrunk.seen) == ("undecided", False)


def test_settled_networks_decide_after_a_quarter_of_the_papers_iterations():
    def first(outcomes):
        return judged("fig4", outcomes)["1"]

    assert first(at_effort(25_000)).verdict == "holds"
    assert first(at_effort(100_000, late=0.03)).verdict == "holds"
    longer, settled = at_effort(30_000), at_effort(25_000)
    uneven = {cell: longer[cell] if cell.depth == 2 else one for cell, one in settled.items()}
    unsettled, few = at_effort(25_000, late=0.03), at_effort(100_000, networks=2)
    for cells in (at_effort(24_999), unsettled, few, uneven):
        assert first(cells).verdict == "undecided"


def test_of_a_figure_that_is_not_whole_on_record_claims_are_judged_whose_cells_are_there(folder, monkeypatch):
    known = depth_outcomes(STUDIES["fig3"], as_published)
    some = {cell: replace(one, recorded=True) for cell, one in known.items() if cell.mask == Causal()}
    whole = verdicts("fig3", known)
    assert verdicts("fig3", some) == {number: whole[number] for number in "25"}
    assert not verdicts("fig3", {cell: one for cell, one in some.items() if cell.positional != "none"})
    record = folder / "records.jsonl"
    record.write_text("\n".join(record_line(*one) for one in some.items()))
    monkeypatch.setattr(outcomes, "RECORDS", record)
    found = {one.id: one for one in collect(folder, papers=["wu2025/fig3"])}
    assert [found[f"wu2025/fig3/{number}"].tested_on == UNTESTED for number in "23456"] == [0, 1, 1, 0, 1]
    assert (found["wu2025/fig3/2"].verdict, found["wu2025/fig3/4"].verdict) == (whole["2"], "undecided")


def test_the_sink_metric_has_no_curve_that_could_settle():
    flat = gaps_of(pairs(0.0, 0.0, 0.0))
    curves = at_effort(25_000)[Setting(2, False)].curves
    cells = {
        cell: outcome(cell, flat, share=0.3, steps=25_000, curves=curves) for cell in STUDIES["fig10"].cells
    }
    claim = judged("fig10", cells)["1"]
    assert (claim.verdict, claim.seen) == ("undecided", True)


def test_networks_that_have_not_learnt_are_left_out_and_named():
    cells = depth_outcomes(STUDIES["fig4"])
    none = {cell: replace(one, accuracy=np.full(3, 0.05)) for cell, one in cells.items()}
    found = verdicts("fig4", none)
    assert found.pop("8") == "fails"  # by one setting on record
    assert {*found.values()} == {"undecided"}
    for cell, one in cells.items():
        accuracy = np.array([0.6, 0.05 if cell.depth == 6 else 0.6, 0.6])
        cells[cell] = replace(one, accuracy=accuracy)
    evidence = judged("fig4", cells)["1"].evidence
    assert ["2 of 3 networks" in piece.where for piece in evidence] == [False, False, True]


# --- compared when they can do as much ---------------------------------------------------------------------


def test_depth_is_separated_from_how_much_networks_have_learnt_and_curves_from_settled_ones():
    cells = depth_outcomes(STUDIES["curves"])
    found = [*verdicts("curves", cells).values()]
    # gaps grow with depth; all go on growing to the end, the smallest by .04, which three networks do not tell
    assert found[:6] == ["holds", "holds", "undecided"] * 2
    # the same share of accuracy, the same gap at the same loss: depth adds nothing
    alike = {cell: outcome(cell, gaps_of(pairs(0.1, 0.1, 0.0)), 0.1) for cell in cells}
    assert "holds" not in [*verdicts("curves", alike).values()][:6]


def test_what_depth_costs_and_brings_is_judged_separately():
    cells = {}
    for cell, one in depth_outcomes(STUDIES["curves"]).items():
        steps, sign = cell.depth / 2, 1 if cell.residual else -1
        curves = {"loss": one.curves["loss"] - 0.4 * steps * sign}
        curves["in_context_accuracy"] = one.curves["in_context_accuracy"] - 0.2 * steps
        accuracy = 0.5 + 0.05 * steps * sign + SCATTER
        cells[cell] = replace(one, accuracy=accuracy, curves=one.curves | curves)
    found = verdicts("curves", cells)
    # without residual deeper networks lose more and know less; with it they gain accuracy and bias together
    assert [found[number] for number in ("7", "9", "10")] == ["holds", "fails", "holds"]


@pytest.mark.parametrize(("accuracy", "verdict"), [(0.3, "holds"), (0.5, "fails"), (None, "undecided")])
def test_the_harder_inputs_are_those_learnt_less_of_after_as_many_iterations(accuracy, verdict):
    """Training on the mixture goes on for longer, which is no reason to call it easier."""

    def rising(end, steps):
        points = np.linspace(0, steps, 11)
        level = (end + 0.01 * np.array([[-1.0], [0.0], [1.0]])) * points / steps
        return {"iteration": points} | dict.fromkeys((*PAIRS, "in_context_accuracy", "loss"), level)

    flat = gaps_of(pairs(0.0, 0.0, 0.0))
    own = STUDIES["fig13"].cells
    cells = {cell: outcome(cell, flat, steps=1000, curves=rising(accuracy or 0.3, 1000)) for cell in own}
    if accuracy is not None:
        cells |= {
            cell: outcome(cell, flat, steps=2500, curves=rising(1.0, 2500)) for cell in STUDIES["fig4"].cells
        }
    (claim,) = (claim for claim in STUDIES["fig13"].claims if claim.id.endswith("/13"))
    found = judge(claim, table(cells, own))
    assert found.verdict == verdict
    if accuracy is not None:
        assert found.evidence[0].estimate.value == pytest.approx(0.4 - accuracy)


STEPS = np.arange(0, 2001, 50)
LEVELS = np.linspace(0.1, 0.6, 11).tolist()
ACCURACY = "in_context_accuracy"


def learner(speed, ceiling=1.0, seeds=(0, 1, 2), steps=STEPS):
    """Networks whose accuracy rises at their own pace and whose gap is a third of it."""
    pace = speed * (1 + 0.1 * np.arange(len(seeds)))[:, None]
    accuracy = ceiling * (1 - np.exp(-pace * steps / 1000))
    curves = {"iteration": steps, ACCURACY: accuracy, "first-last": 0.3 * accuracy, "loss": 3 - 2 * accuracy}
    gaps = gaps_of(pairs(0.1, 0.1, 0.0), networks=len(seeds))
    return outcome(Setting(), gaps, curves={name: np.asarray(one, float) for name, one in curves.items()})


def test_equal_stages_show_no_difference_though_equal_iterations_do():
    slow, fast = learner(0.5), learner(2.0)
    matched = at_equal(ACCURACY, fast, slow, LEVELS)
    np.testing.assert_array_equal(matched.points, LEVELS)
    for side in (matched.one, matched.other):
        np.testing.assert_allclose(side, np.tile(0.3 * matched.points, (3, 1)), atol=1e-12)
    timed = at_equal("iteration", fast, slow, STEPS.tolist())
    np.testing.assert_array_equal(timed.points, STEPS)
    assert timed.one.mean() - timed.other.mean() > 0.1


def test_the_first_time_counts_when_accuracy_falls_again():
    made = learner(1.0, seeds=(0,), steps=np.arange(5))
    made.curves[ACCURACY] = np.array([[0.0, 0.4, 0.2, 0.8, 0.5]])
    made.curves["first-last"] = np.array([[0.0, 1.0, 9.0, 4.0, 9.0]])
    np.testing.assert_allclose(
        at_equal(ACCURACY, made, made, [0.2, 0.4, 0.5, 0.8]).one[0], [0.5, 1.0, 6.5, 4.0]
    )


def test_equal_losses_are_met_from_above():
    matched = at_equal("loss", learner(2.0), learner(0.5), [2.8, 2.4, 0.5])
    np.testing.assert_allclose(matched.points, [2.8, 2.4])
    np.testing.assert_allclose(matched.one, np.tile([0.03, 0.09], (3, 1)), atol=1e-12)
    np.testing.assert_allclose(matched.other, matched.one, atol=1e-12)


def test_what_only_one_covers_and_stopped_networks_are_left_out():
    low, high = learner(1.0, ceiling=0.3), learner(1.0)
    assert at_equal(ACCURACY, low, high, [0.1, 0.9]).points.tolist() == [0.1]
    high.curves[ACCURACY] = 0.5 + high.curves[ACCURACY] / 2
    assert at_equal(ACCURACY, low, high, LEVELS).points.size == 0
    short = learner(1.0, steps=np.arange(0, 1001, 40))
    assert at_equal("iteration", learner(1.0), short, STEPS.tolist()).points.max() == 1000
    # nor do stopped networks count
    one = replace(learner(1.0), loss=np.array([1.0, 1.0, np.nan]))
    one.curves["first-last"][2] = np.nan
    matched = at_equal(ACCURACY, one, learner(2.0), LEVELS)
    assert matched.one.shape[0] == 2
    assert np.isfinite(matched.one).all()
    none = replace(one, loss=np.full(3, np.nan))
    assert at_equal(ACCURACY, none, one, LEVELS).points.size == 0
