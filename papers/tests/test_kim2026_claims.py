"""The table of Kim et al.'s figures against simulations and closed forms, and what is claimed of it."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from posbias import __version__
from posbias.core.store import Store
from posbias.profiles.claims import judge
from posbias.simulation import RecencyModel
from posbias_papers import kim2026
from posbias_papers.closed_forms.layernorm import (
    log_key_factors,
    scores_without_layernorm,
    second_layer_scores,
)
from posbias_papers.kim2026.figures import CLAIMS, effort_of, printed_numbers
from posbias_papers.kim2026.table import setting, table
from posbias_papers.reproduction import write

SAMPLES = 20_000
BARE, RECENT = (
    RecencyModel(dimension=16, anisotropy=0.0, norm="none"),
    RecencyModel(dimension=16, anisotropy=0.5),
)
RESIDUAL = replace(RECENT, residual=True)
RISE = "Eq. 42 gives the rise to the last key but one within 10 % at d"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The simulations behind all figures."""
    models = dict.fromkeys(model for study in kim2026.STUDIES.values() for model in study.cells)
    folder = tmp_path_factory.mktemp("kim2026_claims")
    return kim2026._simulated(models, Store(folder / "cells"), SAMPLES, 0, 1, False, None)[0]


def shown(results, name):
    return {model: results[model] for model in kim2026.STUDIES[name].cells}


@pytest.fixture(scope="module")
def claims(results):
    return {name: study.judged(table(shown(results, name))) for name, study in kim2026.STUDIES.items()}


def at(frame, model, layer, column):
    """A column of a layer's scores as a matrix, NaN where there is none."""
    rows = frame.xs((*setting(model).values(), layer), level=[*setting(model), "layer"])[column]
    matrix = np.full((model.tokens, model.tokens), np.nan)
    for (query, key), value in rows.items():
        if query == query:
            matrix[int(query), int(key)] = value
    return matrix


# --- the table ---------------------------------------------------------------------------------------------


def test_the_table_has_what_was_simulated(results):
    model, result = RECENT, results[RECENT]
    frame = table({model: result})
    for layer in range(1, model.depth + 1):
        row = frame.loc[(*setting(model).values(), layer)].dropna(subset=["recency"]).iloc[0]
        probability, plain = (
            one[layer - 1] for one in (result.recency_probability, result.plain_recency_probability)
        )
        assert (row["recency"], row["recency_se"]) == (probability.value, probability.se)
        assert row["printed_se"] == pytest.approx(plain.se * math.sqrt(SAMPLES / 1e7))
        scores, steps = result.mean_scores.value[layer - 1], result.steps.value[layer - 1]
        below, strictly = np.tril_indices(10), np.tril_indices(10, -1)
        assert np.array_equal(at(frame, model, layer, "score")[below], scores[below])
        assert np.array_equal(at(frame, model, layer, "step")[strictly], steps[strictly])
        share = at(frame, model, layer, "rise_share")
        for i in range(2, 10):
            for j in range(1, i):
                level = scores[i, :i].mean()
                assert share[i, j] == pytest.approx(result.rises.value[layer - 1][i, j] / level)
        beyond = at(frame, model, layer, "beyond_first")
        for away in range(1, 8):
            assert beyond[9, 9 - away] == pytest.approx(scores[9, 9 - away] - scores[away, 0])


def test_what_draws_cannot_tell_is_in_closed_form(results):
    flat = replace(RECENT, anisotropy=0.0, dimension=64)
    frame = table({flat: results[flat], RECENT: results[RECENT]})
    scores = second_layer_scores(10, 64, 0.0)
    known, errors = (at(frame, flat, 2, name) for name in ("known_step", "known_step_se"))
    for i in range(2, 10):
        for j in range(i - 1):
            assert known[i, j] == pytest.approx(scores[i, j + 1] - scores[i, j], rel=1e-9)
            assert errors[i, j] == 0.0
    assert np.array_equal(at(frame, RECENT, 2, "known_step"), at(frame, RECENT, 2, "step"), equal_nan=True)


def test_closed_forms_are_compared_with_what_is_simulated(results):
    model = RecencyModel(dimension=64, anisotropy=0.5, residual=True)
    frame = table({model: results[model], BARE: results[BARE]})
    ratio = at(frame, model, 2, "ratio")[9]
    # as errata has it
    assert ratio[8] == pytest.approx(1.060, abs=0.002)
    assert at(frame, model, 2, "published_ratio")[9, 8] == pytest.approx(1.032, abs=0.0005)
    assert at(frame, model, 2, "corrected_ratio")[9, 8] == pytest.approx(1.063, abs=0.0005)
    for reading in ("published", "corrected"):
        forms = np.exp(log_key_factors(10, 64, 0.5, residual=True, reading=reading))
        assert at(frame, model, 2, f"{reading}_ratio")[9] == pytest.approx(forms, rel=1e-14)
        off = (forms[8] - 1.0) / (ratio[8] - 1.0) - 1.0
        assert at(frame, model, 2, f"{reading}_ratio_off")[9, 8] == pytest.approx(off)
        form, score = (
            scores_without_layernorm(10, 16, reading=reading)[9, 8],
            results[BARE].mean_scores.value[1, 9, 8],
        )
        assert at(frame, BARE, 2, f"{reading}_score")[9, 8] == form
        assert at(frame, BARE, 2, f"{reading}_score_off")[9, 8] == pytest.approx(form / score - 1.0)


# --- claims ------------------------------------------------------------------------------------------------


def test_every_claim_has_evidence_of_its_own_figure(claims):
    assert {name: [one.id for one in found] for name, found in claims.items()} == {
        name: [claim.id for claim in found] for name, found in CLAIMS.items()
    }
    papers = [one for found in claims.values() for one in found if one.claim.provenance == "paper"]
    assert len(papers) == 34
    assert not [one.id for one in papers if one.verdict == "fails"]
    assert not [one.id for one in papers if "within 10 %" in one.sentence]
    for one in (one for found in claims.values() for one in found):
        assert all((one.claim.place, one.claim.strength, one.claim.scope, one.claim.effort)), one.id


def test_every_printed_number_is_compared_with_that_of_its_model(results):
    numbers = [*printed_numbers(table(shown(results, "section3")))]
    assert [one["printed"] for one in numbers] == [0.5015, 0.5, 0.6382, 0.5544, 0.5931, 0.5457]
    models = [
        RecencyModel(dimension=d, anisotropy=alpha, residual=residual)
        for alpha, residual in ((0.0, False), (0.5, False), (0.5, True))
        for d in (16, 64)
    ]
    for one, model in zip(numbers, models, strict=True):
        assert one["value"] == results[model].recency_probability[1].value
        assert one["holds"]


@pytest.mark.parametrize(
    ("name", "number", "verdict"),
    [
        *(("fig1", number, "holds") for number in (2, 4, 5, 7)),
        ("fig1", 9, "fails"),
        *(("fig2", number, "holds") for number in (1, 9, 10)),
        ("fig3", 2, "holds"),
        *(("fig4", number, "holds") for number in (2, 3)),
        ("fig5", 3, "holds"),
        ("fig7", 7, "fails"),
        ("fig7", 11, "holds"),
        *(("section3", number, "holds") for number in (7, 11, 12)),
    ],
)
def test_verdicts_that_few_samples_reach(claims, name, number, verdict):
    (claim,) = (claim for claim in claims[name] if claim.id == f"kim2026/{name}/{number}")
    assert claim.verdict == verdict, str(claim)


@pytest.mark.parametrize(
    ("name", "number", "column", "wrong"),
    [
        ("fig1", 2, "rise_share", lambda values: values + 0.1),
        ("fig1", 4, "known_step", lambda values: -values),
        ("fig1", 5, "step", lambda values: -values),
        ("fig1", 7, "score", lambda values: -values),
        ("fig1", 8, "beyond_first", lambda values: -values),
        ("fig1", 11, "recency", lambda values: values + 0.02),
        ("fig2", 1, "published_ratio_step", lambda values: -values),
        ("fig2", 10, "published_ratio", lambda values: 1 / values),
        ("fig3", 2, "recency", lambda values: 1 - values),
        ("section3", 3, "recency", lambda values: values + 0.01),
        ("section3", 12, "recency", lambda values: 1 - values),
    ],
)
def test_a_claim_fails_where_its_column_is_wrong(results, name, number, column, wrong):
    (claim,) = (one for one in CLAIMS[name] if one.id == f"kim2026/{name}/{number}")
    frame = table(shown(results, name))
    assert judge(claim, frame).verdict != "fails"
    frame[column] = wrong(frame[column])
    assert judge(claim, frame).verdict == "fails"


def test_what_fails_is_explained(claims):
    assert all(one.claim.explanation for found in claims.values() for one in found if one.verdict == "fails")


# --- pages -------------------------------------------------------------------------------------------------


def test_a_page_has_the_numbers_and_the_claims(results, claims, tmp_path):
    made = write(kim2026.STUDIES["fig2"], table(shown(results, "fig2")), effort_of(SAMPLES), tmp_path)
    text, data, frame = (path.read_text() for path in made.files)
    about = json.loads(data)
    assert (about["name"], about["version"], about["samples"]) == ("fig2", __version__, SAMPLES)
    assert about["effort"] == "20,000 samples"
    assert [claim["id"] for claim in about["claims"]] == [one.id for one in CLAIMS["fig2"]]
    assert len(about["cells"]) == 10
    assert text.startswith("# Kim et al. 2026")
    for claim in claims["fig2"]:
        assert f"- **{claim.mark}**: {claim.sentence} (" in text
    assert frame.startswith("norm,anisotropy,residual,dimension,layer,query,key,n,recency,recency_se,")
    assert len(frame.splitlines()) == 1 + 10 * 4 * (1 + 55)


def test_the_effort_is_what_every_cell_drew():
    assert effort_of(10**7) == "full"
    assert effort_of(10**7 - 1) == "quick"
    assert effort_of(20_000) == "20,000 samples"
