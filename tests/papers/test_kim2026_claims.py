"""What is claimed of Kim et al.'s figures: every kind of effect can hold and fail, and pages carry the numbers."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from posbias import __version__
from posbias.claims import LEAST, NEAR, Claim, Effect
from posbias.estimate import Estimate
from posbias.papers import kim2026
from posbias.papers.cells import gather
from posbias.papers.explaining import explanations
from posbias.papers.kim2026 import effects
from posbias.papers.kim2026.forms import GOOD, key_factor_rows, score_row
from posbias.papers.kim2026.pages import page_of
from posbias.papers.kim2026.statements import SECTION3, claims_of
from posbias.papers.kim2026.table import PUBLISHED, check_published
from posbias.simulate import RecencyModel
from posbias.theory.layernorm import log_key_factors, scores_without_layernorm

SAMPLES = 20_000
BARE, RECENT = (
    RecencyModel(dimension=16, anisotropy=0.0, norm="none"),
    RecencyModel(dimension=16, anisotropy=0.5),
)
RESIDUAL = replace(RECENT, residual=True)
INF = math.inf
RISE = "Eq. 42 gives the rise to the last key but one within 10 % at d"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kim2026_claims")


@pytest.fixture(scope="module")
def results(folder):
    """The simulations behind all figures."""
    models = dict.fromkeys(model for figure in kim2026.FIGURES.values() for model in figure.needed)
    return gather(models, folder / "cells", threads=1, samples=SAMPLES)


@pytest.fixture(scope="module")
def claims(results):
    return {name: claims_of(name, results) for name in kim2026.TARGETS}


# --- effects -----------------------------------------------------------------------------------------------


def test_an_effect_may_have_a_scale_of_its_own():
    small = Effect("p", 0.0015, 0.0002, INF)
    assert (small.least, small.tolerance, small.origin) == (LEAST, NEAR, 0.0)
    assert str(small) == "p +0.002\xa0±\xa00.000, p\xa0<\xa01e-5"
    assert Effect("p", -0.0001, 0.0002, INF).verdict() == "fails"
    assert Effect("p", -0.0001, 0.0002, INF, least=0.0).verdict() == "undecided"
    assert Effect("p", -0.0015, 0.0002, INF, least=0.0).verdict() == "fails"
    assert Effect("p", 0.0015, 0.0002, INF, near=True).verdict() == "holds"
    assert Effect("p", 0.0015, 0.0002, INF, near=True, tolerance=0.001).verdict() == "fails"
    half = Effect("p", 0.0015, 0.0002, INF, origin=0.5)
    assert str(half) == "p 0.5015\xa0±\xa00.0002, p\xa0<\xa01e-5"
    claim = Claim("x", (replace(half, value=-0.0015, sign=-1),))
    assert claim.number == (pytest.approx(0.5015), 0.0002)
    assert claim.as_dict()["effects"][0]["value"] == pytest.approx(0.5015)
    assert str(Effect("p", 1.6e-7, 1e-8, INF, least=0.0)).startswith("p +1.6e-7\xa0±\xa01e-8,")
    assert str(Effect("p", 1.6e-7, 1e-8, INF, origin=0.5)).startswith("p 0.50000016\xa0±\xa01e-8,")
    assert str(Effect("p", -0.25, 0.0, INF, least=0.0)).startswith("p −0.25,")


@pytest.mark.parametrize(
    ("build", "holds", "fails"),
    [
        (effects.above_half, (RECENT, 2), (BARE, 3)),
        (effects.below_half, (BARE, 3), (RECENT, 2)),
        (effects.close_to_half, (BARE, 2), (BARE, 3)),
        (effects.rising, (RECENT, 2), (BARE, 3)),
    ],
)
def test_what_is_said_of_one_layer_holds_and_fails(results, build, holds, fails):
    assert build(results[holds[0]], holds[1]).verdict() == "holds"
    assert build(results[fails[0]], fails[1]).verdict() == "fails"


def test_rows_are_even_only_without_layernorm(results):
    assert effects.even_rows(results[BARE], 2, 0.05).verdict() == "holds"
    uneven = effects.even_rows(results[RECENT], 2, 0.05)
    assert uneven.verdict() == "fails"
    scores = results[RECENT].mean_scores.value[1]
    spread = max(
        (scores[i, j] - scores[i, 0]) / scores[i, :i].mean() for i in range(2, 10) for j in range(1, i)
    )
    assert uneven.value <= spread + 0.01
    assert uneven.value > 0.05


def test_differences_have_a_direction(results):
    recent, residual = results[RECENT], results[RESIDUAL]
    assert effects.more_recent("x", (recent, 2), (residual, 2)).verdict() == "holds"
    assert effects.more_recent("x", (residual, 2), (recent, 2)).verdict() == "fails"
    found = effects.more_recent("x", (recent, 3), (recent, 2))
    p = recent.recency_probability
    assert found.value == p[2].value - p[1].value
    assert found.se == math.hypot(p[2].se, p[1].se)
    assert effects.higher_scores("x", recent, residual, 2).verdict() == "holds"
    assert effects.higher_scores("x", residual, recent, 2).verdict() == "fails"
    assert effects.beyond_distance(recent, 2).verdict() == "holds"
    assert effects.beyond_distance(results[BARE], 2).verdict() == "fails"


def test_scores_factor_in_layer_2_alone(results):
    steep = results[RecencyModel(dimension=16, anisotropy=0.75)]
    assert effects.factored(steep, kim2026.key_factor_ratios, 0.02).verdict() == "holds"

    def by_distance(result, query=-1):
        # scores of distance alone are no product
        tokens = result.model.tokens
        last = tokens - 1 if query == -1 else query
        distance = np.abs(last - np.arange(tokens))
        ratio = np.where(np.arange(tokens) < last, (1.0 + last) / (1.0 + distance), np.nan)
        return kim2026.figures.Averages(ratio, np.full(tokens, 1e-4))

    assert effects.factored(steep, by_distance, 0.02).verdict() == "fails"


def test_all_of_several_effects_is_the_least_sure_of_them():
    names, errors = ["one", "two", "three"], [0.1, 0.1, 0.1]
    found = effects.every("all", names, [9.0, 0.5, 8.0], errors, 1000, least=0.0)
    assert (found.where, found.value, found.verdict()) == ("all, two", 0.5, "holds")
    # p-values of the surest are all 0: the margin decides
    assert effects.every("all", names, [90.0, 70.0, 80.0], errors, 1000, least=0.0).where == "all, two"
    assert effects.every("all", names, [9.0, 0.05, 8.0], errors, 1000, least=0.0).verdict() == "undecided"
    assert effects.every("all", names, [9.0, -0.5, 8.0], errors, 1000, least=0.0).verdict() == "fails"
    # one of three that is 2 errors below zero happens by chance
    assert effects.every("all", names, [9.0, -0.2, 8.0], errors, 1000, least=0.0).verdict() == "undecided"
    near = {"near": True, "tolerance": 0.5}
    assert effects.every("all", names, [0.1, -0.2, 0.0], errors, 1000, **near).where == "all, two"
    assert effects.every("all", names, [0.1, 1.2, 0.0], errors, 1000, **near).verdict() == "fails"
    assert effects.every("all", names, [0.1, math.nan, 0.0], errors, 1000, **near).verdict() == "undecided"


@pytest.mark.parametrize(
    ("away", "verdict"), [(0.0, "holds"), (3.9, "holds"), (-3.9, "holds"), (4.1, "fails")]
)
def test_a_printed_number_holds_within_four_standard_errors(results, away, verdict):
    check = check_published({RECENT: results[RECENT]})[0]
    value = Estimate(0.6382 + away * check.se, 1e-4, 100)
    effect = effects.printed_effect(replace(check, value=value))
    assert effect.verdict() == verdict
    assert replace(check, value=value).holds == (verdict == "holds")
    assert Claim("x", (effect,)).number == (pytest.approx(value.value), check.se)


# --- claims ------------------------------------------------------------------------------------------------


def test_there_is_a_claim_for_everything_that_is_said(claims):
    assert {name: len(found) for name, found in claims.items()} == {
        "fig1": 10, "fig2": 9, "fig3": 7, "fig4": 6, "fig5": 4, "fig6": 5, "fig7": 10, "section3": 13
    }  # fmt: skip
    sentences = [claim.sentence for found in claims.values() for claim in found]
    assert all(
        not sentence.startswith("…") and claim for sentence, claim in zip(sentences, sentences, strict=True)
    )
    for found in claims.values():
        assert len({claim.sentence for claim in found}) == len(found)
        assert all(claim.effects for claim in found)


def test_every_printed_number_is_a_claim_of_its_own(claims, results):
    printed = [
        claim for claim in claims["section3"] if claim.sentence.startswith("The recency probability of")
    ]
    assert [claim.sentence.rsplit(" ", 1)[1] for claim in printed] == [number for number, _ in PUBLISHED]
    for claim, (_, model) in zip(printed, PUBLISHED, strict=True):
        assert claim.number[0] == pytest.approx(results[model].recency_probability[1].value, abs=1e-12)
        assert claim.verdict == "holds"


@pytest.mark.parametrize(
    ("name", "sentence", "verdict"),
    [
        ("fig1", "With anisotropic embeddings mean scores of layer 2 rise", "holds"),
        ("fig1", "(closed form, as printed)", "fails"),
        ("fig2", "(closed form, as printed) h rises", "holds"),
        ("fig2", "(closed form, as printed) From the first key to the last but one", "fails"),
        ("fig2", f"(closed form, corrected) {RISE} = 64", "holds"),
        ("fig3", "Without LayerNorm the recency probability of layers 3 and 4 is close", "fails"),
        ("fig3", "Without LayerNorm layers 3 and 4 prefer earlier keys", "holds"),
        ("fig4", "With LayerNorm isotropic embeddings prefer recent keys", "fails"),
        ("fig5", "The more anisotropic the embeddings", "holds"),
        ("fig6", "A residual connection weakens recency", "holds"),
        ("fig7", f"(closed form, as printed) {RISE} = 64", "fails"),
        ("section3", "Without LayerNorm the recency probability of layers 1 and 2 is close", "holds"),
    ],
)
def test_verdicts_that_few_samples_reach(claims, name, sentence, verdict):
    (claim,) = (claim for claim in claims[name] if claim.sentence.startswith(sentence))
    assert claim.verdict == verdict, str(claim)


def test_what_fails_is_explained_and_nothing_else_is(claims):
    ids = {f"kim2026/{name}/{k}" for name, found in claims.items() for k in range(1, len(found) + 1)}
    explained = {key for key in explanations() if key.startswith("kim2026/")}
    assert explained <= ids
    failing = {
        f"kim2026/{name}/{k}"
        for name, found in claims.items()
        for k, claim in enumerate(found, start=1)
        if claim.verdict == "fails"
    }
    assert failing <= explained


# --- closed forms ------------------------------------------------------------------------------------------


def test_closed_forms_stand_beside_what_is_simulated(results):
    shown = kim2026.FIGURES["fig7"]
    rows = {(one.model, one.key): one for one in key_factor_rows(shown, results)}
    assert len(rows) == 2 * 5 * 8
    model = shown.model(64, 0.5)
    about = rows[model, 8].as_dict()
    for reading in ("published", "corrected"):
        expected = math.exp(log_key_factors(10, 64, 0.5, residual=True, reading=reading)[8])
        assert about[reading] == pytest.approx(expected, rel=1e-14)
        assert about[f"{reading}_less_simulated"] == about[reading] - about["simulated"]
    # as errata has it
    assert about["simulated"] == pytest.approx(1.060, abs=0.002)
    assert about["published"] == pytest.approx(1.032, abs=0.0005)
    assert about["corrected"] == pytest.approx(1.063, abs=0.0005)
    assert about["simulated"] == kim2026.key_factor_ratios(results[model]).value[8]


def test_a_score_is_held_against_its_equation(results):
    row = score_row(results[BARE])
    assert (row.quantity, row.key) == ("S(9, 8), Eq. 19", 8)
    assert row.published == scores_without_layernorm(10, 16, reading="published")[9, 8]
    assert row.published == pytest.approx(4 * row.corrected)
    assert row.simulated == results[BARE].mean_scores.value[1, 9, 8]
    assert row.effect("corrected").verdict() == "holds"
    assert row.effect("published").verdict() == "fails"
    off = replace(row, published=row.simulated * (1.0 + 2 * GOOD))
    assert off.effect("published").value == pytest.approx(2 * GOOD)


def test_a_number_that_is_not_known_decides_nothing(results):
    row = replace(score_row(results[BARE]), simulated=0.01, se=0.005)
    assert row.effect("published").flaw
    assert replace(row, simulated=math.nan).effect("published").flaw


# --- pages -------------------------------------------------------------------------------------------------


def test_a_page_has_the_numbers_and_the_claims(results, claims, tmp_path):
    page = page_of("fig2", results, kim2026.QUICK, kim2026.FULL)
    text, data = (path.read_text() for path in page.write(tmp_path, "fig2"))
    about = json.loads(data)
    assert (about["name"], about["version"], about["samples"]) == ("fig2", __version__, SAMPLES)
    assert about["effort"] == "20,000 samples"
    assert [claim["claim"] for claim in about["claims"]] == [claim.sentence for claim in claims["fig2"]]
    assert all({"claim", "number", "se", "verdict", "why"} <= set(claim) for claim in about["claims"])
    assert len(about["cells"]) == 10
    assert len(about["closed_forms"]) == 80
    assert text.startswith("# Kim et al. 2026")
    for claim in claims["fig2"]:
        assert f"- **{claim.verdict}**: {claim.sentence}\n" in text
    assert "| LayerNorm, α = 0.5 | 16 | h(8)/h(0) | " in text
    assert "| LayerNorm, α = 0 | 64 | h(8)/h(0) | – | 1.00268 | – |" in text


def test_the_effort_is_that_of_the_model_with_fewest_samples(results):
    few = min(result.samples for result in results.values())
    assert page_of("section3", results, few, 10 * few).effort == "quick"
    assert page_of("section3", results, 1, few).effort == "full"
    assert page_of("section3", results, few + 1, 10 * few).effort == "20,000 samples"


def test_the_six_numbers_have_a_page_of_their_own(results):
    page = page_of("section3", results, kim2026.QUICK, kim2026.FULL)
    assert page.models == SECTION3
    assert len(page.checks) == 6
    assert "| LayerNorm, α = 0.5, residual, d = 64, layer 2 | 0.5457 | 0.5" in page.text()


def test_what_a_figure_is_judged_against_is_simulated_with_it():
    shown = kim2026.FIGURES["fig6"]
    assert all(model.residual for model in shown.models)
    assert set(shown.needed) == {*shown.models, *kim2026.FIGURES["fig5"].models}
