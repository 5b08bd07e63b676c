"""What is claimed of Kim et al.'s figures: every kind of effect can hold and fail, and pages carry the numbers."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from posbias import __version__
from posbias.core.store import Store
from posbias.profiles.claims import Claim, judge, judged
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Above, Below, Near
from posbias.reports.pages import Page
from posbias.simulation import Averages, RecencyModel
from posbias.theory.closed_forms.layernorm import (
    log_key_factors,
    scores_without_layernorm,
    second_layer_scores,
)
from posbias_papers import kim2026
from posbias_papers.explaining import explanations
from posbias_papers.kim2026 import closed_forms as forms
from posbias_papers.kim2026 import quantities as q
from posbias_papers.kim2026.closed_forms import GOOD, key_factor_ratios, key_factor_rows, score_row
from posbias_papers.kim2026.models import PRINTED, by_anisotropy, effort_of
from posbias_papers.reproduction import write

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
    models = dict.fromkeys(model for study in kim2026.STUDIES.values() for model in study.cells)
    return kim2026._simulated(models, Store(folder / "cells"), SAMPLES, 0, 1, False, None)[0]


@pytest.fixture(scope="module")
def claims(results):
    return {
        name: [judge(claim, results) for claim in study.claims] for name, study in kim2026.STUDIES.items()
    }


def verdict(quantity, results, test=None) -> str:
    return judged(Claim("", "", "it is so", test=test or Above()), quantity(results)).verdict


# --- evidence ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quantity", "test", "holds", "fails"),
    [
        (q.probability, q.RECENT, (RECENT, 2), (BARE, 3)),
        (q.probability, Below(0.5, q.DIGIT), (BARE, 3), (RECENT, 2)),
        (q.probability, Near(0.5, q.CLOSE), (BARE, 2), (BARE, 3)),
        (q.rising, Above(), (RECENT, 2), (BARE, 3)),
    ],
)
def test_what_is_said_of_one_layer_holds_and_fails(results, quantity, test, holds, fails):
    assert verdict(quantity([holds[0]], holds[1]), results, test) == "holds"
    assert verdict(quantity([fails[0]], fails[1]), results, test) == "fails"


def test_rows_are_even_only_without_layernorm(results):
    assert verdict(q.even_rows([BARE], 2), results) == "holds"
    (uneven,) = q.even_rows([RECENT], 2)(results)
    assert uneven.verdict() == "fails"
    scores = results[RECENT].mean_scores.value[1]
    spread = max(
        (scores[i, j] - scores[i, 0]) / scores[i, :i].mean() for i in range(2, 10) for j in range(1, i)
    )
    assert uneven.estimate.value <= spread + 0.01
    assert uneven.estimate.value > 0.05


def test_differences_have_a_direction(results):
    assert verdict(q.excess([RECENT], [RESIDUAL], 2), results, q.MORE) == "holds"
    assert verdict(q.excess([RESIDUAL], [RECENT], 2), results, q.MORE) == "fails"
    (growth,) = q.growth([RECENT], 2)(results)
    p = results[RECENT].recency_probability
    assert growth.estimate.value == p[2].value - p[1].value
    assert growth.estimate.se == pytest.approx(math.hypot(p[2].se, p[1].se))
    (wide,) = q.narrow_excess([RECENT], [replace(RECENT, dimension=64)])(results)
    assert wide.estimate.value > 0.05
    assert verdict(q.higher_scores([RECENT], [RESIDUAL], 2), results) == "holds"
    assert verdict(q.higher_scores([RESIDUAL], [RECENT], 2), results) == "fails"
    assert verdict(q.beyond_distance([RECENT], 2), results) == "holds"
    assert verdict(q.beyond_distance([BARE], 2), results) == "fails"


def test_what_draws_cannot_tell_is_told_in_closed_form(results):
    flat = replace(RECENT, anisotropy=0.0, dimension=64)
    (told,) = forms.rising([flat])(results)
    assert told.verdict() == "holds"
    assert "closed form (20,000 samples know a rise to" in told.where
    assert told.estimate == Estimate(forms.least_rise(flat))
    assert [*forms.rising([RECENT])(results)] == [*q.rising([RECENT], 2)(results)]
    bare = replace(flat, dimension=16)
    for model in (bare, replace(bare, anisotropy=0.5), replace(bare, anisotropy=0.5, residual=True)):
        scores = second_layer_scores(10, 16, model.anisotropy, residual=model.residual)
        steps = [scores[i, j + 1] - scores[i, j] for i in range(2, 10) for j in range(i - 1)]
        assert forms.least_rise(model) == pytest.approx(min(steps), rel=1e-9)
    assert 0.0 < forms.least_rise(replace(flat, dimension=1024)) < 1e-25


def test_scores_factor_in_layer_2_alone(results):
    steep = RecencyModel(dimension=16, anisotropy=0.75)
    assert verdict(q.factored([steep], key_factor_ratios), results) == "holds"

    def by_distance(result, query=-1):
        # scores of distance alone are no product
        tokens = result.model.tokens
        last = tokens - 1 if query == -1 else query
        distance = np.abs(last - np.arange(tokens))
        ratio = np.where(np.arange(tokens) < last, (1.0 + last) / (1.0 + distance), np.nan)
        return Averages(ratio, np.full(tokens, 1e-4))

    assert verdict(q.factored([steep], by_distance), results) == "fails"


def test_a_printed_number_is_that_of_as_many_samples_as_the_paper_drew(results):
    (piece,) = q.printed("0.6382", RECENT)(results)
    assert piece.verdict() == "holds"
    assert replace(piece, estimate=Estimate(0.6382, 6e-4, SAMPLES)).verdict() == "undecided"
    plain = results[RECENT].plain_recency_probability[1]
    assert piece.test.number.se == pytest.approx(plain.se * math.sqrt(SAMPLES / 1e7))
    assert piece.estimate == results[RECENT].recency_probability[1]
    assert verdict(q.printed("0.6482", RECENT), results) == "fails"


# --- claims ------------------------------------------------------------------------------------------------


def test_there_is_a_claim_for_everything_that_is_said(claims):
    assert {name: len(found) for name, found in claims.items()} == {
        "fig1": 12, "fig2": 10, "fig3": 7, "fig4": 6, "fig5": 4, "fig6": 5, "fig7": 11, "section3": 14
    }  # fmt: skip
    sentences = [claim.sentence for found in claims.values() for claim in found]
    assert all(
        not sentence.startswith("…") and claim for sentence, claim in zip(sentences, sentences, strict=True)
    )
    for found in claims.values():
        assert len({claim.sentence for claim in found}) == len(found)
        assert all(claim.evidence for claim in found)


def test_every_printed_number_is_a_claim_of_its_own(claims, results):
    printed = [
        claim for claim in claims["section3"] if claim.sentence.startswith("The recency probability of")
    ]
    assert [claim.sentence.rsplit(" ", 1)[1] for claim in printed] == [number for number, _ in PRINTED]
    for claim, (_, model) in zip(printed, PRINTED, strict=True):
        assert claim.estimate.value == pytest.approx(results[model].recency_probability[1].value, abs=1e-12)
        assert claim.verdict == "holds"


@pytest.mark.parametrize(
    ("name", "sentence", "verdict"),
    [
        ("fig1", "At α = 0.5 mean scores of layer 2 strictly increase", "holds"),
        ("fig1", "LayerNorm makes mean scores of layer 2 rise along every row at α = 0, in 64", "holds"),
        ("fig1", "(closed form, as printed)", "fails"),
        ("fig2", "(closed form, as printed) h rises", "holds"),
        ("fig2", "(closed form, as printed) From the first key to the last but one", "fails"),
        ("fig2", f"(closed form, corrected) {RISE} = 64", "holds"),
        ("fig3", "Without LayerNorm the recency probability of layers 3 and 4 is close", "fails"),
        ("fig3", "Attention layers alone lead to a bias toward earlier tokens", "holds"),
        ("fig2", "(closed form, as printed) At α = 0 h(j) grows slowly", "holds"),
        ("fig4", "With LayerNorm isotropic embeddings prefer recent keys", "holds"),
        ("fig4", "With anisotropic embeddings 1,024 dimensions", "fails"),
        ("fig5", "The more anisotropic the embeddings", "holds"),
        ("fig6", "A residual connection weakens recency", "holds"),
        ("fig7", f"(closed form, as printed) {RISE} = 64", "fails"),
        ("fig7", "(closed form, as printed) At α = 0 h(j) grows slowly", "holds"),
        ("section3", "Without LayerNorm the recency probability remains close", "holds"),
    ],
)
def test_verdicts_that_few_samples_reach(claims, name, sentence, verdict):
    (claim,) = (claim for claim in claims[name] if claim.sentence.startswith(sentence))
    assert claim.verdict == verdict, str(claim)


def test_the_paper_is_not_held_to_what_it_does_not_say(claims):
    everything = {one.claim.id: one for found in claims.values() for one in found}
    papers = {id: one for id, one in everything.items() if one.claim.provenance == "paper"}
    assert len(papers) == 34
    assert not [id for id, one in papers.items() if one.verdict == "fails"]
    assert not [id for id, one in papers.items() if "within 10 %" in one.sentence]
    for one in everything.values():
        assert all((one.claim.place, one.claim.strength, one.claim.scope, one.claim.effort)), one.claim.id
        assert (
            not one.claim.alias_of or everything[one.claim.alias_of].claim.provenance == one.claim.provenance
        )


def test_what_fails_is_explained_and_nothing_else_is(claims):
    ids = {one.claim.id for found in claims.values() for one in found}
    assert ids == {f"kim2026/{name}/{k}" for name, found in claims.items() for k in range(1, len(found) + 1)}
    explained = {key for key in explanations() if key.startswith("kim2026/")}
    assert explained <= ids
    failing = {one.claim.id for found in claims.values() for one in found if one.verdict == "fails"}
    assert failing <= explained


# --- closed forms ------------------------------------------------------------------------------------------


def test_closed_forms_stand_beside_what_is_simulated(results):
    shown = by_anisotropy(residual=True)
    rows = {(row.model, row.key): row for row in key_factor_rows(shown, results)}
    assert len(rows) == 2 * 5 * 9  # h(0) itself too
    model = RecencyModel(dimension=64, anisotropy=0.5, residual=True)
    about = rows[model, 8].as_dict()
    for reading in ("published", "corrected"):
        expected = math.exp(log_key_factors(10, 64, 0.5, residual=True, reading=reading)[8])
        assert about[reading] == pytest.approx(expected, rel=1e-14)
        assert about[f"{reading}_less_simulated"] == about[reading] - about["simulated"]
    # as errata has it
    assert about["simulated"] == pytest.approx(1.060, abs=0.002)
    assert about["published"] == pytest.approx(1.032, abs=0.0005)
    assert about["corrected"] == pytest.approx(1.063, abs=0.0005)
    assert about["simulated"] == key_factor_ratios(results[model]).value[8]


def test_a_score_is_held_against_its_equation(results):
    row = score_row(results[BARE])
    assert (row.quantity, row.key) == ("S(9, 8), Eq. 19", 8)
    assert row.forms["published"] == scores_without_layernorm(10, 16, reading="published")[9, 8]
    assert row.forms["published"] == pytest.approx(4 * row.forms["corrected"])
    assert row.simulated.value == results[BARE].mean_scores.value[1, 9, 8]
    within = Near(0.0, GOOD)
    assert row.evidence("corrected").tested(within).verdict() == "holds"
    assert row.evidence("published").tested(within).verdict() == "fails"
    off = replace(row, forms={"published": row.simulated.value * (1.0 + 2 * GOOD)})
    assert off.evidence("published").estimate.value == pytest.approx(2 * GOOD)


def test_a_number_that_is_not_known_decides_nothing(results):
    row = replace(score_row(results[BARE]), simulated=Estimate(0.01, 0.005, SAMPLES))
    assert row.evidence("published").flaw
    assert replace(row, simulated=Estimate(math.nan)).evidence("published").flaw


# --- pages -------------------------------------------------------------------------------------------------


def page(name, results, amount=SAMPLES):
    study = kim2026.STUDIES[name]
    shown = {model: results[model] for model in study.cells}
    return study, shown, [judge(claim, shown) for claim in study.claims]


def test_a_page_has_the_numbers_and_the_claims(results, claims, tmp_path):
    study, shown, _ = page("fig2", results)
    made = write(study, shown, effort_of(SAMPLES), tmp_path)
    text, data = (path.read_text() for path in made.files)
    about = json.loads(data)
    assert (about["name"], about["version"], about["samples"]) == ("fig2", __version__, SAMPLES)
    assert about["effort"] == "20,000 samples"
    assert [claim["id"] for claim in about["claims"]] == [f"kim2026/fig2/{k}" for k in range(1, 11)]
    assert [claim["claim"] for claim in about["claims"]] == [claim.sentence for claim in claims["fig2"]]
    assert all({"claim", "number", "se", "verdict", "why"} <= set(claim) for claim in about["claims"])
    assert len(about["cells"]) == 10
    assert len(about["closed_forms"]) == 90
    assert text.startswith("# Kim et al. 2026")
    for claim in claims["fig2"]:
        assert f"- **{claim.mark}**: {claim.sentence} (" in text
    assert "| LayerNorm, α = 0.5 | 16 | h(8)/h(0) | " in text
    assert "| LayerNorm, α = 0 | 64 | h(8)/h(0) | – | 1.00268 | – |" in text


def test_the_effort_is_what_every_cell_drew():
    assert effort_of(10**7) == "full"
    assert effort_of(10**7 - 1) == "quick"
    assert effort_of(20_000) == "20,000 samples"


def test_the_six_numbers_have_a_page_of_their_own(results):
    study, shown, _ = page("section3", results)
    assert len(study.data(shown)["published"]) == 6
    text = Page(tables=tuple(study.tables(shown))).markdown()
    assert "| LayerNorm, α = 0.5, residual, d = 64, layer 2 | 0.5457 | 0.5" in text


def test_what_a_figure_is_judged_against_is_simulated_with_it():
    cells = kim2026.STUDIES["fig6"].cells
    assert {model.residual for model in cells} == {True, False}
    assert set(kim2026.STUDIES["fig5"].cells) < set(cells)
