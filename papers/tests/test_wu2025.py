"""Figures 1 to 24 of Wu et al. 2025: which cells they need, what is claimed of them, and what is drawn."""

import json
import math
import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from answers import as_json, faults
from hypothesis import given
from hypothesis import strategies as st

from posbias.core.errors import InvalidValueError, OutputFileError
from posbias.core.store import dump_json
from posbias.profiles.evidence import signed_text
from posbias.reports.answers.experiments import GapAgreement
from posbias.reports.pages import Page
from posbias.reports.plots import picture_bytes
from posbias.theory.masks import Causal, Full, Prefix, SlidingWindow
from posbias.training.kernels import agreement
from posbias.training.loop import Trained
from posbias.training.results import load_cell
from posbias_papers.cli.answers import PaperWu2025
from posbias_papers.statements import STATEMENTS
from posbias_papers.study import Study
from posbias_papers.theorems import claims_of_statement
from posbias_papers.wu2025 import FULL, QUICK, STUDIES, Effort, Setting, outcome_of, reproduce
from posbias_papers.wu2025.drawing import draw_depths, draw_maps
from posbias_papers.wu2025.outcomes import PAIRS, Gaps, Outcome, Sinks
from posbias_papers.wu2025.settings import DEEP, DEPTHS
from posbias_papers.wu2025.table import _above_even
from posbias_papers.wu2025.table1 import _items
from posbias_papers.wu2025.tables import data

SEEDS, TOKENS = (0, 1, 2), 17
SCATTER = np.array([0, 0.001, -0.001])
"""By how much accuracies of three networks differ."""
REPEATED = ((4, 13), (5, 14), (3, 15), (6, 16), (7, 17), (8, 18), (9, 20), (10, 21), (11, 22), (12, 23))
"""Figures, and those that repeat them with a fixed vocabulary."""
BESIDE = ("curves", "observed-sinks", "masks", "normalisers", "anisotropy")
"""Studies that no figure shows."""


# --- which cells -------------------------------------------------------------------------------------------


def test_every_number_is_a_figure_or_the_caption_of_others():
    numbers = (f"fig{number}" for number in range(1, 25))
    assert [*STUDIES] == ["table1", *numbers, *BESIDE]
    captions = {
        name: tuple(part.name for part in study.parts) for name, study in STUDIES.items() if study.parts
    }
    assert captions == {
        "fig19": ("fig15", "fig16", "fig17", "fig18"),
        "fig24": ("fig21", "fig22", "fig23"),
    }
    assert not any(STUDIES[name].claims or STUDIES[name].draw for name in captions)


def test_every_claim_has_the_id_of_its_place():
    for name, study in STUDIES.items():
        ids = [claim.id for claim in study.claims]
        assert len({*ids}) == len(ids)
        assert all(id.startswith(f"wu2025/{name}/") for id in ids)
        assert all(claim.place.startswith(("Section ", "Appendix ")) for claim in study.claims)


def test_of_findings_with_a_fixed_vocabulary_the_paper_says_that_most_hold():
    own = {
        claim.id: claim.strength
        for number in range(13, 25)
        for claim in STUDIES[f"fig{number}"].claims
        if claim.provenance == "paper"
    }
    assert own == {
        "wu2025/fig13/13": "hedged",
        "wu2025/fig13/15": "hedged",
        "wu2025/fig14/2": "observation",
        "wu2025/fig14/3": "observation",
        "wu2025/fig14/6": "hedged",
        "wu2025/fig20/1": "observation",
        "wu2025/fig21/1": "observation",
        "wu2025/fig22/1": "hedged",
        "wu2025/fig22/4": "hedged",
        "wu2025/fig23/3": "observation",
    }


def test_what_stands_in_two_figures_is_counted_once():
    claims = {claim.id: claim for study in STUDIES.values() for claim in study.claims}
    again = {id: claim.alias_of for id, claim in claims.items() if claim.alias_of}
    assert again["wu2025/fig4/3"] == "wu2025/fig2/3"
    assert again["wu2025/fig9/1"] == "wu2025/fig10/1"
    assert len(again) == 10 + 1 + 1 + 1
    for id, other in again.items():
        assert not claims[other].alias_of
        assert claims[id].provenance == claims[other].provenance
        assert claims[id].sentence.partition(" (")[0] == claims[other].sentence.partition(" (")[0]


@pytest.mark.parametrize("effort", [QUICK, FULL], ids=lambda effort: effort.name)
def test_every_setting_is_one_valid_experiment(effort):
    settings = {setting for study in STUDIES.values() for setting in study.cells}
    experiments = {effort.experiment(setting) for setting in settings}
    assert len(experiments) == len(settings) == 130
    assert {one.seeds for one in experiments} == {effort.seeds}
    if effort is FULL:
        assert {(one.iterations, len(one.seeds)) for one in experiments} == {(100_000, 5)}


def test_figures_share_their_cells():
    fig2, fig4, fig5, fig9, fig10 = (set(STUDIES[f"fig{n}"].cells) for n in (2, 4, 5, 9, 10))
    assert fig4 < fig2
    assert fig9 == fig10 < fig2
    assert {setting for setting in fig2 if setting.residual} < fig5


def test_the_vocabulary_figures_repeat_the_others():
    for number, again in REPEATED:
        settings = [replace(one, inputs="fixed_vocabulary") for one in STUDIES[f"fig{number}"].cells]
        assert settings == list(STUDIES[f"fig{again}"].cells)


def test_what_the_figures_vary():
    fig2 = list(STUDIES["fig2"].cells)
    assert {(s.depth, s.residual, s.positional) for s in fig2} == {
        (depth, residual, word)
        for depth in DEPTHS
        for residual in (False, True)
        for word in ("none", "decay", "rope")
    }
    assert {s.mask for s in fig2} == {Causal()}
    assert {s.depth for s in STUDIES["fig5"].cells} == set(DEEP)
    fig3 = list(STUDIES["fig3"].cells)
    assert {(s.mask, s.positional) for s in fig3} == {
        (mask, word) for mask in (Full(), Causal()) for word in ("none", "sinusoidal", "rope")
    }
    assert {(s.depth, s.residual, s.task.answers) for s in fig3} == {(2, True, (0, 7))}
    asked = {n: {s.task.answers for s in STUDIES[f"fig{n}"].cells} for n in (6, 7, 8)}
    assert asked == {6: {(0,)}, 7: {(4,)}, 8: {(7,)}}
    assert [s.mask for s in STUDIES["fig11"].cells] == [SlidingWindow(w) for w in (5, 9, 13)] * 2
    assert [s.mask for s in STUDIES["fig12"].cells] == [Prefix(k) for k in (2, 4, 6)] * 2


def test_the_masks_of_figure_1_are_drawn_without_training(tmp_path):
    done = reproduce("fig1", out=tmp_path)
    assert [path.name for path in done.written] == ["fig1.svg", "fig1.png", "fig1.md", "fig1.json"]
    assert [claim.verdict for claim in done.claims["fig1"]] == ["holds"]
    assert not (tmp_path / "cells").exists()
    assert not faults(json.loads(dump_json(PaperWu2025.of(**done.as_dict()).as_json())))


def test_table_1_leads_from_each_observation_to_claims_that_are_there(tmp_path):
    done = reproduce("table1", out=tmp_path)
    rows = json.loads((tmp_path / "table1.json").read_text())["rows"]
    assert len(rows) == 5
    known = {claim.id for study in STUDIES.values() for claim in study.claims}
    known |= {claim.id for one in STATEMENTS for claim in claims_of_statement(one)}
    for row in rows:
        assert {*row["claims"]} <= known
        places = " ".join(place for place, claims in _items() if {*claims} & {*row["claims"]})
        assert all(result in places for result in row["results"])
    causal, decay, both, sinks, lost = (row["claims"] for row in rows)
    assert {"wu2025/theorem-4.1", "wu2025/fig3/2"} <= {*causal}
    assert "wu2025/lemma-4.6" in decay
    assert "wu2025/theorem-4.5" not in decay
    assert {"wu2025/theorem-4.7", "wu2025/fig2/9"} <= {*both}
    assert {"wu2025/theorem-4.3", "wu2025/fig12/3"} <= {*sinks}
    assert "wu2025/theorem-4.1" not in lost
    head, shown = done.table()
    assert head[0] == "observation"
    assert [row[0] for row in shown] == [row["observation"] for row in rows]


def test_a_setting_says_what_it_is():
    shown = str(Setting(4, False, SlidingWindow(9), "decay", ("first", "last"), "fixed_vocabulary"))
    assert shown == "window 9, decay, depth 4, no residual, trained on first and last, fixed vocabulary"


# --- what is claimed ---------------------------------------------------------------------------------------


def gaps_of(levels: dict[str, float], *, accuracy: float = 0.6) -> Gaps:
    rng = np.random.default_rng([round(1e6 * (1 + level)) for level in levels.values()])
    drawn = {pair: levels[pair] + rng.normal(0, 0.002, len(SEEDS)) for pair in PAIRS}
    return Gaps(drawn, np.full(len(SEEDS), accuracy), np.full(len(SEEDS), 1.4), drawn)


def trained(setting: Setting, slope: float, steps: int = 100_000, seeds: tuple[int, ...] = SEEDS) -> Trained:
    """Three networks whose gap grows with accuracy at the given slope, trained as long as the paper's."""
    accuracy = np.linspace(0.03, [0.6, 0.7, 0.8], 6).T
    curves = {"iteration": np.arange(6), "in_context_accuracy": accuracy}
    curves |= dict.fromkeys(PAIRS, slope * accuracy)
    curves["loss"] = 3 - 2 * accuracy
    experiment = Effort("", seeds, {setting.depth: steps}, 10).experiment(setting)
    return Trained(experiment, {"query": torch.zeros(3, setting.depth, 1, 1)}, curves, {}, {})


def even_attention(setting: Setting) -> np.ndarray:
    allowed = setting.mask.allowed(TOKENS)
    return np.tile(allowed / allowed.sum(axis=1, keepdims=True), (len(SEEDS), setting.depth, 1, 1))


def outcome(
    setting: Setting, gaps: Gaps, slope: float = 0.1, *, sink: float = 0.9, first: int = 1
) -> Outcome:
    token = np.arange(TOKENS)
    networks = np.random.default_rng(setting.depth).normal(0, 0.004, (len(SEEDS), 1))
    shape = np.where(token < first, sink, 0.05) + networks
    nulls = np.where(token < first, 0.2, 0.05)
    attention = even_attention(setting)
    sinks = Sinks(shape, np.tile(nulls, (3, 1)), nulls, gaps.learnt)
    return Outcome(gaps, sinks, attention, np.full((len(SEEDS), 8), 0.5), trained(setting, slope), 40)


def pairs(first_middle: float, first_last: float, middle_last: float) -> dict[str, float]:
    return dict(zip(PAIRS, (first_middle, first_last, middle_last), strict=True))


def as_published(setting: Setting) -> dict[str, float]:
    """Gaps as the paper describes them for the depth figures."""
    strength = {"none": 0.12, "decay": -0.12, "rope": 0.04}[setting.positional] + 0.05 * (
        setting.depth / 2 - 1
    )
    if setting.residual:
        strength += 0.3 * (setting.depth == 4)
    return pairs(0.7 * strength, strength, 0.2 * strength)


def depth_outcomes(study: Study, gaps=as_published, **options) -> dict[Setting, Outcome]:
    return {
        setting: outcome(setting, gaps_of(gaps(setting)), 0.1 * setting.depth, **options)
        for setting in study.cells
    }


def verdicts(study, outcomes) -> dict[str, str]:
    return {claim.sentence: claim.verdict for claim in study.judged(outcomes)}


def test_the_papers_own_pattern_over_depth_holds():
    study = STUDIES["fig4"]
    found = verdicts(study, depth_outcomes(study))
    # its decay mask favours later items at depth 2, so "the causal mask alone" is about no encoding only
    assert set(found.values()) == {"holds"}, found
    assert len(found) == 10


def test_gaps_that_shrink_with_depth_fail_the_claims_on_depth():
    def shrinking(setting):
        return {pair: value - 0.3 * (setting.depth / 2 - 1) for pair, value in as_published(setting).items()}

    study = STUDIES["fig4"]
    outcomes = depth_outcomes(study, shrinking)
    outcomes = {s: replace(one, trained=trained(s, -0.1 * s.depth)) for s, one in outcomes.items()}
    found = verdicts(study, outcomes)
    assert found["No residual: depth 6 favours earlier items more than depth 2"] == "fails"


def test_residual_networks_turn_and_deep_rotary_ones_may_lose_the_middle():
    study = STUDIES["fig5"]

    def bent(setting):
        lost = setting.depth == 10 and setting.positional == "rope"
        return pairs(0.2, 0.1, -0.1) if lost else as_published(setting)

    found = verdicts(study, depth_outcomes(study, bent))
    assert (
        found["Residual: position bias is non-monotonic in depth: first–last both rises and falls"] == "holds"
    )
    assert (
        found["Residual: RoPE in the deep-layer regime is lost in the middle (here at depth 10)"] == "holds"
    )
    straight = verdicts(study, depth_outcomes(study, lambda s: pairs(0.0, 0.1 * s.depth, 0.0)))
    assert (
        straight["Residual: position bias is non-monotonic in depth: first–last both rises and falls"]
        == "fails"
    )
    assert (
        straight["Residual: RoPE in the deep-layer regime is lost in the middle (here at depth 10)"]
        == "fails"
    )


def at_effort(steps: int, seeds: tuple[int, ...] = SEEDS, late: float = 0.0) -> dict[Setting, Outcome]:
    """The paper's pattern after so many iterations; curves change by `late` after the first two thirds."""
    outcomes = {}
    for setting, one in depth_outcomes(STUDIES["fig4"]).items():
        curves = {name: np.zeros((3, 4)) for name in (*PAIRS, "in_context_accuracy", "loss")}
        curves["first-last"] = 0.1 + np.array([0.0, 0.0, 0.0, late]) + np.array([[0.0], [1e-3], [-1e-3]])
        curves = {name: held[: len(seeds)] for name, held in curves.items()}
        curves["iteration"] = steps * np.array([0.3, 0.5, 2 / 3, 1.0])
        run = trained(setting, 0.1, steps, seeds)
        run = replace(run, weights={})
        kept = {name: held[: len(seeds)] for name, held in one.gaps.gaps.items()}
        cut = Gaps(kept, one.gaps.accuracy[: len(seeds)], one.gaps.loss[: len(seeds)], kept)
        sinks = replace(one.sinks, trained=one.sinks.trained[: len(seeds)], learnt=cut.learnt)
        sinks = replace(sinks, untrained=sinks.untrained[: len(seeds)])
        outcomes[setting] = replace(one, gaps=cut, sinks=sinks, trained=replace(run, curves=curves))
    return outcomes


def test_a_stage_of_training_decides_nothing_but_shows_something():
    study = STUDIES["fig4"]
    (claim, *_), deep = study.judged(at_effort(2500)), study.judged(at_effort(2500))[1]
    assert (claim.verdict, claim.seen) == ("undecided", True)
    assert claim.mark == "undecided, seen at this effort"
    assert "2,500 of the paper's 100,000 iterations: a stage of training" in claim.why
    assert (
        "; decided by 100,000 iterations × 3 networks or more (`posbias paper wu2025 fig4 --eff" in claim.why
    )
    shrunk = {
        setting: replace(one, gaps=gaps_of(pairs(*(0.3 / setting.depth for _ in PAIRS))))
        for setting, one in at_effort(2500).items()
    }
    deep = study.judged(shrunk)[1]
    assert (deep.verdict, deep.seen) == ("undecided", False)
    told = json.loads(dump_json(deep.as_dict()))
    assert told["seen"] is False
    assert told["verdict"] == "undecided"
    assert told["provenance"] == "paper"


def test_settled_networks_decide_after_a_quarter_of_the_papers_iterations():
    study = STUDIES["fig4"]
    assert study.judged(at_effort(25_000))[0].verdict == "holds"
    assert study.judged(at_effort(24_999))[0].verdict == "undecided"
    moving = study.judged(at_effort(25_000, late=0.03))[0]
    assert moving.verdict == "undecided"
    assert "3 of 3 cells had not settled" in moving.why
    assert study.judged(at_effort(100_000, late=0.03))[0].verdict == "holds"
    assert "2 networks, 3 needed" in study.judged(at_effort(100_000, seeds=(0, 1)))[0].why
    uneven = at_effort(25_000)
    for setting, one in uneven.items():
        if setting.depth == 2:
            uneven[setting] = replace(one, trained=replace(at_effort(30_000)[setting].trained))
    assert "25,000 to 30,000 iterations, equally many needed" in study.judged(uneven)[0].why


def test_the_sink_metric_has_no_curve_that_could_settle():
    study = STUDIES["fig10"]
    outcomes = {
        setting: replace(one, trained=replace(at_effort(25_000)[Setting(2, False)].trained))
        for setting, one in sink_outcomes(study, lambda s: 0.9).items()
    }
    claim = study.judged(outcomes)[0]
    assert (claim.verdict, claim.seen) == ("undecided", True)
    assert "the sink metric has no learning curve" in claim.why


def test_networks_that_have_not_learnt_leave_every_claim_open():
    study = STUDIES["fig4"]
    outcomes = {
        setting: replace(one, gaps=replace(one.gaps, accuracy=np.full(3, 0.05)))
        for setting, one in depth_outcomes(study).items()
    }
    at_end = [claim for claim in study.judged(outcomes) if "equal" not in claim.sentence]
    assert {claim.verdict for claim in at_end} == {"undecided"}


def test_networks_that_are_left_out_are_told_where_they_are_left_out():
    study = STUDIES["fig4"]
    outcomes = depth_outcomes(study)
    for setting, one in outcomes.items():
        accuracy = np.array([0.6, 0.05 if setting.depth == 6 else 0.6, 0.6])
        outcomes[setting] = replace(one, gaps=replace(one.gaps, accuracy=accuracy))
    found = {claim.id: claim for claim in study.judged(outcomes)}
    told = "2 of 3 networks"
    assert [told in piece.where for piece in found["wu2025/fig4/1"].evidence] == [False, False, True]


def test_what_tends_to_be_is_a_share_of_the_settings():
    study = STUDIES["fig11"]
    grows = sink_outcomes(study, lambda s: 0.3 + 0.04 * s.mask.width * (-1 if s.residual else 1))
    claim = study.judged(grows)[0]
    assert claim.claim.strength == "hedged"
    assert len(claim.evidence) == 1
    assert "1 of 2" in claim.evidence[0].where
    assert claim.verdict != "holds"


def test_depth_is_told_from_how_much_networks_have_learnt_and_curves_from_settled_ones():
    study = STUDIES["curves"]
    outcomes = depth_outcomes(study)
    found = [claim.verdict for claim in study.judged(outcomes)[:6]]
    # gaps grow with depth, with residual connections only to depth 6 by .1; all go on growing to the end,
    # the smallest of them by .04, which three networks do not tell from .02
    assert found == ["holds", "holds", "undecided"] * 2
    flat = {
        setting: replace(one, trained=replace(one.trained, curves=one.trained.curves | {"iteration": late}))
        for late in [np.array([0, 1, 2, 3, 4, 400])]
        for setting, one in outcomes.items()
    }
    for one in flat.values():
        for name in ("first-last", "in_context_accuracy"):
            one.trained.curves[name][:, -1] = one.trained.curves[name][:, -2] + 0.001
    assert [claim.verdict for claim in study.judged(flat)[:6]] == ["holds"] * 6
    # the same share of accuracy, the same gap at the same loss: depth adds nothing
    alike = {
        setting: replace(one, gaps=gaps_of(pairs(0.1, 0.1, 0.0)), trained=trained(setting, 0.1))
        for setting, one in outcomes.items()
    }
    assert "holds" not in [claim.verdict for claim in study.judged(alike)[:6]]


def test_what_depth_costs_and_brings_is_told_apart():
    study = STUDIES["curves"]
    outcomes = {}
    for setting, one in depth_outcomes(study).items():
        run, steps = one.trained, setting.depth / 2
        loss = run.curves["loss"] + 0.4 * steps * (1 if not setting.residual else -1)
        accuracy = run.curves["in_context_accuracy"] - 0.2 * steps
        grown = 0.5 + 0.05 * steps * (1 if setting.residual else -1) + SCATTER
        outcomes[setting] = replace(
            one,
            trained=replace(run, curves=run.curves | {"loss": loss, "in_context_accuracy": accuracy}),
            gaps=replace(one.gaps, accuracy=grown),
        )
    verdict = {claim.id.rpartition("/")[2]: claim.verdict for claim in study.judged(outcomes)}
    # without residual deeper networks lose more and know less; with it they gain accuracy and bias together
    assert [verdict[number] for number in ("7", "9", "10")] == ["holds", "fails", "holds"]


def compared_outcomes(study: Study, level, accuracy=lambda setting: 0.6) -> dict[Setting, Outcome]:
    gaps = {
        setting: gaps_of(pairs(*[level(setting)] * 3), accuracy=accuracy(setting)) for setting in study.cells
    }
    return {
        setting: outcome(setting, replace(cell, accuracy=cell.accuracy + SCATTER))
        for setting, cell in gaps.items()
    }


def test_gaps_are_compared_by_window_up_to_the_causal_mask():
    study = STUDIES["masks"]
    wider = {"window 5": 0.05, "window 9": 0.15, "window 13": 0.25, "causal": 0.35}

    def by_window(levels) -> list[str]:
        outcomes = compared_outcomes(study, lambda s: levels.get(s.masked, 0.3))
        return [claim.verdict for claim in study.judged(outcomes)]

    assert by_window(wider) == ["holds"]
    assert by_window({mask: -gap for mask, gap in wider.items()}) == ["fails"]
    assert by_window(wider | {"window 9": 0.0}) == ["holds"]


def test_vocabularies_are_compared_by_the_direction_they_share():
    study = STUDIES["anisotropy"]
    mixture = [setting for setting in study.cells if setting.inputs == "gaussian_mixture"]
    strengths = [setting.task.shared_direction for setting in study.cells if setting not in mixture]
    assert strengths == [0.0, 0.5, 0.75, 1.0] * 2
    assert {*mixture} | {replace(one, inputs="fixed_vocabulary") for one in mixture} < {*study.cells}

    def strength(setting):
        return 0.0 if setting in mixture else setting.shared_direction

    as_told = compared_outcomes(study, lambda s: 0.1 + 0.2 * strength(s), lambda s: 0.7 - 0.2 * strength(s))
    assert [claim.verdict for claim in study.judged(as_told)] == ["holds"] * 3
    apart = compared_outcomes(study, lambda s: 0.1 + 0.2 * (s in mixture), lambda s: 0.5 + 0.2 * strength(s))
    assert [claim.verdict for claim in study.judged(apart)] == ["fails"] * 3


BIASED = {
    "fig3": pairs(0.3, 0.05, -0.25),
    "fig6": pairs(0.3, 0.3, 0.0),
    "fig7": pairs(-0.3, 0.0, 0.3),
    "fig8": pairs(0.0, -0.3, -0.3),
}


def data_outcomes(study: Study, encoded: dict[str, float]) -> dict[Setting, Outcome]:
    def gaps(setting: Setting) -> dict[str, float]:
        if setting.positional != "none":
            return encoded
        return pairs(0.0, 0.0, 0.0) if setting.mask == Full() else pairs(0.1, 0.15, 0.05)

    return {setting: outcome(setting, gaps_of(gaps(setting))) for setting in study.cells}


@pytest.mark.parametrize("name", BIASED)
def test_the_papers_own_pattern_over_training_data_holds(name):
    study = STUDIES[name]
    found = verdicts(study, data_outcomes(study, BIASED[name]))
    assert set(found.values()) == {"holds"}, found


@pytest.mark.parametrize("name", BIASED)
def test_networks_that_ignore_their_training_data_fail(name):
    study = STUDIES[name]
    found = verdicts(study, data_outcomes(study, pairs(0.0, 0.0, 0.0)))
    (learns,) = (sentence for sentence in found if "learn the bias" in sentence and "sin" in sentence)
    assert found[learns] == "fails"


def sink_outcomes(study: Study, level, share: float = 0.3) -> dict[Setting, Outcome]:
    flat = gaps_of(pairs(0.0, 0.0, 0.0))
    outcomes = {
        setting: outcome(setting, flat, sink=level(setting), first=getattr(setting.mask, "length", 1))
        for setting in study.cells
    }
    # as on record, with attention above even on the first token
    return {
        setting: replace(
            one, trained=replace(one.trained, weights={}), attention=towards_first(one.attention, share)
        )
        for setting, one in outcomes.items()
    }


def towards_first(even: np.ndarray, share: float) -> np.ndarray:
    """Attention of which a part goes to the first token, where it is seen."""
    first = (even[..., :1] > 0) * np.eye(TOKENS)[0]
    return np.where(even[..., :1] > 0, (1 - share) * even + share * first, even)


@pytest.mark.parametrize("name", ["fig9", "fig10", "fig11", "fig12"])
def test_sinks_that_grow_hold_and_none_fails(name):
    study = STUDIES[name]
    grows = sink_outcomes(study, lambda s: 0.3 + 0.04 * getattr(s.mask, "width", 5))
    assert set(verdicts(study, grows).values()) == {"holds"}
    none = sink_outcomes(study, lambda s: 0.05, share=0.0)
    found = verdicts(study, none).items()
    assert "holds" not in {verdict for sentence, verdict in found if "No sink" not in sentence}


def test_all_three_windows_are_compared():
    study = STUDIES["fig11"]
    claims = study.judged(sink_outcomes(study, lambda s: {5: 0.3, 9: 0.2, 13: 0.6}[s.mask.width]))
    # the widest draws more than the narrowest, but half of the steps go down
    assert [claim.verdict for claim in claims][:1] == ["holds"]
    assert "2 of 4" in claims[3].evidence[0].where
    assert claims[3].verdict != "holds"


def test_a_sink_on_the_first_token_within_each_window_is_found():
    study = STUDIES["fig11"]
    outcomes = sink_outcomes(study, lambda s: 0.5, share=0.0)
    for setting, one in outcomes.items():
        drawn = 0.5 * one.attention
        for query in range(TOKENS):
            drawn[..., query, max(0, query - setting.mask.width + 1)] += 0.5
        outcomes[setting] = replace(one, attention=drawn)
    verdict = {claim.id: claim.verdict for claim in study.judged(outcomes)}
    assert (verdict["wu2025/fig11/5"], verdict["wu2025/fig11/6"]) == ("fails", "fails")
    own = {claim.id: claim for claim in study.judged(sink_outcomes(study, lambda s: 0.5))}
    assert (own["wu2025/fig11/5"].verdict, own["wu2025/fig11/6"].verdict) == ("holds", "holds")


@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_attention_beyond_even_against_a_loop_over_queries(width, seed):
    tokens = 7
    kernels = np.random.default_rng(seed).dirichlet(np.ones(tokens), (2, 3, tokens))
    for within in (False, True):
        told = _above_even(kernels, width, "within" if within else "first")
        for network in range(2):
            beyond = [
                kernels[network, layer, query, max(0, query - width + 1)] - 1 / min(width, query + 1)
                for layer in range(3)
                for query in range(1, tokens)
                if (query >= width) == within
            ]
            assert told[network] == pytest.approx(math.fsum(beyond) / len(beyond), abs=1e-12)


# --- what is drawn -----------------------------------------------------------------------------------------


def words(picture) -> str:
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in picture.findobj(Text))


BARS = {"fig2": 12, "fig3": 4, "fig5": 6}
"""Panels of the figures of gaps, with those of learning curves."""
CURVES = {"curves": 12}


LONG = ("fig2", "fig5", "fig11", "curves")
PANELS = [
    pytest.param(name, axes, marks=[pytest.mark.slow] * (name in LONG))
    for name, axes in {
        **BARS,
        **CURVES,
        "anisotropy": 2,
        "fig9": 4,
        "fig10": 2,
        "fig11": 6,
        "masks": 2,
        "normalisers": 1,
    }.items()
]


@pytest.mark.parametrize(("name", "axes"), PANELS)
def test_a_figure_shows_its_panels_and_its_learners_and_no_claim(name, axes):
    study = STUDIES[name]
    if name in BIASED:
        outcomes = data_outcomes(study, BIASED[name])
    else:
        outcomes = depth_outcomes(study) if name in BARS | CURVES else sink_outcomes(study, lambda s: 0.5)
    claims = study.judged(outcomes)
    draw = study.draw
    picture = draw(outcomes, "three networks")
    assert len(picture.axes) == axes
    shown = words(picture)
    assert not any(claim.sentence[:30] in shown for claim in claims)
    assert len(study.note(outcomes).split()) <= 25
    assert "three networks" in shown
    if name in BARS:
        ticks = [label.get_text() for ax in picture.axes for label in ax.get_xticklabels()]
        assert sum(tick.endswith("acc 0.60\nloss 1.40") for tick in ticks) == len(outcomes)
    first, second = (picture_bytes(draw(outcomes), "svg") for _ in range(2))
    assert first == second


def test_notes_of_neighbouring_groups_do_not_run_into_each_other():
    study = STUDIES["fig5"]
    outcomes = {
        setting: replace(one, gaps=replace(one.gaps, accuracy=np.array([0.6, 0.05, 0.05])))
        for setting, one in depth_outcomes(study).items()
    }
    picture = draw_depths(outcomes)
    picture.draw_without_rendering()
    for ax in picture.axes:
        boxes = [label.get_window_extent() for label in ax.get_xticklabels() if "loss" in label.get_text()]
        assert all(a.x1 < b.x0 for a, b in pairwise(boxes))


def test_the_page_has_a_row_for_every_cell_and_every_effect():
    study = STUDIES["fig4"]
    outcomes = depth_outcomes(study)
    claims = study.judged(outcomes)
    page = Page("", study.note(outcomes), tuple(study.tables(outcomes)), claims).markdown()
    assert "\n\n3 networks per cell, 100,000 iterations, 40 test sequences\n\n" in page
    for setting, one in outcomes.items():
        assert f"| {setting} | {signed_text(one.gaps.of('first-middle').mean())}" in page
        assert [row["pair"] for row in data({setting: one})["cells"]] == list(PAIRS)
    assert all(str(effect) in page for claim in claims for effect in claim.evidence)


# --- the whole ---------------------------------------------------------------------------------------------

BRIEF = Effort("brief", (0, 1), {2: 6}, 40)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wu2025")
    return folder, reproduce(["fig9", "fig10"], out=folder, effort=BRIEF, workers=1)


def test_figures_are_trained_drawn_and_written(made):
    folder, result = made
    written = {f"{name}.{kind}" for name in ("fig9", "fig10") for kind in ("svg", "png", "md", "json", "csv")}
    assert (
        {path.name for path in folder.iterdir() if path.is_file()}
        == written
        == {p.name for p in result.written}
    )
    assert len(list((folder / "cells").glob("*.nc"))) == 2
    for outcome in result.results.values():
        example = outcome.example
        assert example.shape == outcome.attention.shape[1:]
        np.testing.assert_allclose(example.sum(axis=-1), 1, atol=1e-5)
        assert not np.allclose(example, outcome.attention[0], atol=1e-3)
        bare = replace(outcome, trained=replace(outcome.trained, weights={}))
        assert bare.example is None
    mean, own = (len(draw_maps(one).axes) for one in (
        {s: replace(one, trained=replace(one.trained, weights={})) for s, one in result.results.items()},
        result.results,
    ))  # fmt: skip
    assert (mean, own) == (4, 8)
    about = json.loads((folder / "fig10.json").read_text())
    assert [claim["verdict"] for claim in about["claims"]] == [
        claim.verdict for claim in result.claims["fig10"]
    ]
    # thirty iterations teach nothing, and the figures say so
    assert {claim.verdict for claim in result.claims["fig10"]} == {"undecided"}
    assert "0 of 2" in (folder / "fig10.md").read_text()
    answer = json.loads(dump_json(result.as_dict()))
    assert answer["claims"]
    assert not faults(json.loads(dump_json(PaperWu2025.of(**answer).as_json())))


@pytest.fixture
def all_learnt(monkeypatch):
    """Thirty iterations count as having learnt."""
    monkeypatch.setattr("posbias_papers.wu2025.outcomes.LEARNT", 0.0)


def test_every_cell_stands_beside_what_rollouts_predict_of_it(made, all_learnt, tmp_path):
    folder = tmp_path / "learnt"
    shutil.copytree(made[0] / "cells", folder / "cells")
    result = reproduce("fig10", out=folder, effort=BRIEF, workers=1)
    page, about = (folder / "fig10.md").read_text(), json.loads((folder / "fig10.json").read_text())
    for path in sorted((folder / "cells").glob("*.nc")):
        cell = load_cell(path)
        found = agreement(cell.rollout, cell.evaluation)
        (setting,) = (s for s, one in result.results.items() if s.network == cell.experiment.network)
        assert about["predicted"][str(setting)] == json.loads(json.dumps(to_plain(found)))
        assert {"own kernels, attention only", "theory"} <= {one.label for one in found.values()}
        for one in found.values():
            told = f"{signed_text(one.predicted['first-last'].value)} {one.signs['first-last']} |"
            section = page.split(f"**{one.label}**")[1].split("**")[0]
            (row,) = (line for line in section.splitlines() if line.startswith(f"| {setting} |"))
            assert told in row
            assert row.endswith(f"| {one.order} |")


def test_rollouts_are_held_against_networks_that_have_learnt_only(made):
    folder, _ = made
    cell = load_cell(min((folder / "cells").glob("*.nc")))

    def outcome_at(*accuracy: float) -> Outcome:
        learnt = replace(cell.evaluation.in_context_accuracy, values=np.array(accuracy))
        return outcome_of(replace(cell, evaluation=replace(cell.evaluation, in_context_accuracy=learnt)))

    for one in outcome_at(0.6, 0.05).agreements.values():
        assert {estimate.n for estimate in (*one.predicted.values(), *one.measured.values())} == {1}
    idle = outcome_at(0.05, 0.05)
    for one in idle.agreements.values():
        assert {*one.signs.values(), *one.orders.values()} == {"undecided"}
    setting = Setting(residual=cell.experiment.network.residual)
    page = Page(tables=tuple(STUDIES["fig10"].tables({setting: idle}))).markdown()
    assert f"| {setting} | – | – | – | undecided |" in page
    assert "**theory**: 0 of 0 decided signs right, 3 undecided" in page


def to_plain(found):
    return {name: as_json(GapAgreement.of(one)) for name, one in found.items()}


def test_what_is_trained_is_not_trained_again(made):
    folder, before = made
    stamps = {path: path.stat().st_mtime_ns for path in (folder / "cells").iterdir()}
    after = reproduce("fig10", out=folder, effort=BRIEF, workers=1)
    assert {path: path.stat().st_mtime_ns for path in (folder / "cells").iterdir()} == stamps
    assert after.claims["fig10"] == before.claims["fig10"]


def test_a_group_stands_for_its_figures():
    assert STUDIES.find("fig19") == ["fig15", "fig16", "fig17", "fig18"]
    assert STUDIES.find(["fig24", "fig3"]) == ["fig3", "fig21", "fig22", "fig23"]
    assert STUDIES.find("all") == [name for name, study in STUDIES.items() if not study.parts]


def test_an_unknown_figure_is_refused(tmp_path):
    with pytest.raises(InvalidValueError, match=r"figure: 'fig25' given, .* needed; did you mean"):
        reproduce("fig25", out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_refused_first(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputFileError, match="is no folder"):
        reproduce("fig2", out=tmp_path / "file")
