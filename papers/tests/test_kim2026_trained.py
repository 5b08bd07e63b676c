"""The study of trained models beside Kim et al. 2026: what its claims rest on, and the command that makes it."""

import json
import math

import numpy as np
import pytest
import xarray as xr
from cyclopts import App

from posbias.core.errors import InvalidValueError, MissingPackageError
from posbias.profiles.claims import judge
from posbias_papers import kim2026
from posbias_papers.cli import paper
from posbias_papers.explaining import explanations
from posbias_papers.kim2026 import trained
from posbias_papers.kim2026.trained import ALIBI, CELLS, LONG_ALIBI, LONG_NONE, NONE, ROPE, STUDY

PROMPTS, LAYERS, HEADS = 12, 6, 2


def measurement(tokens, seed=0, *, alike=0.0, recency=0.5, loss=4.0, later=0.0, falls=0.0):
    """A measurement with little noise: cosines fall by `alike` per doubling, loss rises by `later` beyond 256."""
    rng, layers = np.random.default_rng(seed), np.arange(LAYERS)[:, None]
    distance, position = np.arange(tokens), np.arange(tokens)
    noise = 1e-4

    def noisy(values):
        return values + noise * rng.normal(size=(PROMPTS, *np.shape(values)))

    cosine = 0.3 - alike * (layers > 0) * np.log2(np.maximum(distance, 1))
    cosine[:, -1] = np.nan
    heads = np.where(layers > 0, recency, 0.5) * np.ones(HEADS)
    of_position = loss + later * (position >= 256)
    of_position[-1] = np.nan
    by_query = np.tile(recency - falls * (position >= 256), (LAYERS, 1))
    by_layer = ("prompt", "layer")
    return xr.Dataset(
        {
            "cosine": ((*by_layer, "distance"), noisy(cosine)),
            "cosine_normed": ((*by_layer, "distance"), noisy(cosine)),
            "recency": ((*by_layer, "head"), noisy(heads)),
            "adjacency": ((*by_layer, "head"), noisy(heads + 0.1)),
            "recency_content": ((*by_layer, "head"), noisy(heads)),
            "adjacency_content": ((*by_layer, "head"), noisy(heads + 0.1)),
            "recency_query": ((*by_layer, "query"), noisy(by_query)),
            "loss_position": (("prompt", "position"), noisy(of_position)),
        }
    )


def measurements(**of_none):
    """All cells, where only the model without encoding has what is asked for."""
    asked = {"alike": 0.02, "recency": 0.6, "loss": 4.5, "later": 0.3, "falls": 0.05} | of_none
    beside = {"recency": 0.55, "loss": 4.0}
    return {
        NONE: measurement(256, 1, **asked),
        ROPE: measurement(256, 2, **beside),
        ALIBI: measurement(256, 3, **beside),
        LONG_NONE: measurement(1024, 4, **asked),
        LONG_ALIBI: measurement(1024, 5, falls=-0.05, **beside),
    }


def verdicts(results):
    return {int(claim.id.rpartition("/")[2]): judge(claim, results).verdict for claim in STUDY.claims}


def test_claims_hold_where_what_they_say_is_put_in():
    found = verdicts(measurements())
    # 12: its logits prefer near keys more than the others' here; 13: nothing ties prompts to their loss
    assert {number for number, verdict in found.items() if verdict == "holds"} == {*range(1, 12)}
    assert found[12] == "fails"


@pytest.mark.parametrize(
    ("changed", "failing"),
    [
        ({"alike": 0.0}, {1, 2}),
        ({"alike": -0.02}, {1, 2}),
        ({"recency": 0.4}, {4, 6}),
        ({"later": 0.0}, {7, 8}),
        ({"later": -0.3}, {7, 8}),
        ({"falls": -0.05}, {9}),
        ({"loss": 3.5}, {11}),
    ],
)
def test_a_claim_fails_where_the_opposite_is_put_in(changed, failing):
    found = verdicts(measurements(**changed))
    assert failing <= {number for number, verdict in found.items() if verdict == "fails"}


def test_a_band_is_the_mean_of_its_distances():
    cell = measurement(256, alike=0.03)
    for first, last in trained.BANDS:
        expected = [
            [np.mean([cell["cosine"].values[p, t, d] for d in range(first, last + 1)]) for t in range(LAYERS)]
            for p in range(PROMPTS)
        ]
        np.testing.assert_allclose(trained.cosine(cell, (first, last)), expected, rtol=1e-12)


def test_a_stretch_of_losses_is_the_mean_of_its_positions_without_the_last():
    cell = measurement(1024, later=0.3)
    losses = cell["loss_position"].values
    np.testing.assert_allclose(trained.loss(cell, (512, 1024)), losses[:, 512:1023].mean(axis=1), rtol=1e-12)


def test_a_rank_correlation_has_the_error_of_a_jackknife():
    rng = np.random.default_rng(3)
    pairs = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=(200, 40))
    found = [trained.correlation(*sample.T) for sample in pairs]
    spread = np.std([one.value for one in found])
    assert np.mean([one.se for one in found]) == pytest.approx(spread, rel=0.15)
    assert math.isnan(trained.correlation(np.arange(3.0), np.arange(3.0)).value)


def test_every_claim_is_ours_and_says_what_it_rests_on():
    assert [claim.id for claim in STUDY.claims] == [f"kim2026/trained/{k}" for k in range(1, 14)]
    for claim in STUDY.claims:
        assert claim.provenance == "ours"
        assert "256 trained tokens" in claim.scope
        assert "prompts" in claim.effort
    assert {key for key in explanations() if "/trained/" in key} <= {claim.id for claim in STUDY.claims}


@pytest.mark.slow
def test_the_command_measures_and_writes_page_and_numbers(tmp_path):
    app = App()
    app.command(paper)
    words = ["paper", "kim2026", "trained", "--effort", "2", "--threads", "1", "--out", str(tmp_path)]
    app(words, exit_on_error=False, result_action="return_value")
    told = json.loads((tmp_path / "trained.json").read_text())
    assert told["effort"] == "2 prompts"
    assert len(told["layers"]) == 5 * LAYERS
    assert {row["model"] for row in told["losses"]} == {LONG_NONE.model, LONG_ALIBI.model}
    assert [claim["id"] for claim in told["claims"]] == [claim.id for claim in STUDY.claims]
    assert "trained" in (tmp_path / "trained.md").read_text().lower()


def test_without_torch_all_is_made_but_this_which_by_name_says_what_is_missing(tmp_path, monkeypatch):
    def missing(*_, **options):
        raise MissingPackageError("torch: not there")

    monkeypatch.setattr(kim2026, "measured", missing)
    assert kim2026._measured(2, False, {}) == ({}, {"trained": "torch: not there"})
    with pytest.raises(MissingPackageError):
        kim2026.reproduce("trained", out=tmp_path)


def test_among_others_it_is_made_where_prompts_are_given_or_it_is_named(tmp_path, monkeypatch):
    asked = []

    def counted(cells, prompts, **options):
        asked.append(prompts)
        return measurements()

    monkeypatch.setattr(kim2026, "measured", counted)
    monkeypatch.setattr(kim2026, "_simulated", lambda *_: ({}, []))
    monkeypatch.setattr(kim2026, "SIMULATED", {})
    monkeypatch.setattr(kim2026, "with_alphas", lambda alphas: kim2026.Studies([STUDY]))
    made = kim2026.reproduce("all", out=tmp_path, prompts=64)
    assert (asked, [*made.made], made.made["trained"].page.claims[0].verdict) == ([64], ["trained"], "holds")
    assert json.loads((tmp_path / "trained.json").read_text())["effort"] == "full"
    assert [*kim2026.reproduce("all", out=tmp_path).made] == []
    assert [*kim2026.reproduce(["trained"], out=tmp_path).made] == ["trained"]
    assert asked == [64, 16]


def test_fewer_than_two_prompts_are_refused(tmp_path):
    with pytest.raises(InvalidValueError, match="prompts: 1 given"):
        kim2026.reproduce("trained", out=tmp_path, prompts=1)


def test_there_is_a_cell_for_every_model_and_length():
    assert STUDY.cells == CELLS
    assert len({*CELLS}) == 5
