"""What the verbs find is what the functions behind them say; every quantity they promise is there."""

import json
import math

import numpy as np
import pytest

from posbias.core.formats import dump_json
from posbias.core.store import perform_cell
from posbias.profiles.estimate import Estimate
from posbias.simulation import RecencyModel, simulate_recency
from posbias.study import VERBS, Predict, Simulate
from posbias.study.value import Cell
from posbias.study.verbs import SINGLE, class_of, decode_verb, estimate_at, estimates_of
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.encodings import ALiBi
from posbias.theory.mixing import ConstantMixing
from posbias.theory.rollout.dispatch import influence
from posbias_papers.statements import STATEMENTS, select, verify

TASK = {"items": 4, "dimension": 16, "classes": 64, "labels": 4, "burstiness": 2}
SPECS = {
    "predict": {"architecture": {"depth": 3, "layers": [{"heads": 2, "positional": {"kind": "alibi"}}]},
                "mixing": {"kind": "constant", "value": 0.2}, "tokens": 40},
    "simulate": {"model": {"depth": 2, "tokens": 5}, "samples": 300},
    "train": {"task": TASK, "network": {"depth": 1}, "iterations": 20, "batch": 8, "sequences": 40},
    "measure": {"model": "tiny-alibi", "prompts": 4, "tokens": 32},
    "verify": {"statement": "wu-4.1", "instances": 6},
}  # fmt: skip


def perform(spec, seed, on_event=None):
    """What a cell finds, what it costs, and the versions that computed it."""
    result, cost, versions = perform_cell(Cell(decode_verb(spec), seed, {}), on_event)
    return {"result": result, "cost": cost, "versions": versions}


@pytest.fixture(scope="module")
def performed():
    made = {}

    def of(kind):
        if kind not in made:
            heard = []
            made[kind] = perform({"kind": kind, **SPECS[kind]}, 3, on_event=heard.append), heard
        return made[kind]

    return of


def test_every_verb_is_tried_here():
    assert set(SPECS) == {*VERBS, "verify"}


@pytest.mark.parametrize("kind", SPECS)
def test_a_verb_finds_what_it_promises(performed, kind):
    found, heard = performed(kind)
    promised = decode_verb({"kind": kind, **SPECS[kind]}).lengths
    quantities = found["result"]["quantities"]
    assert set(quantities) == set(promised)
    for name, one in quantities.items():
        assert set(one) == {"value", "se", "n"}
        listed = len(one["value"]) if isinstance(one["value"], list) else SINGLE
        assert promised[name] in (listed, None), name
        assert one["n"] is None or one["n"] >= 1
        numbers = estimates_of(one)
        assert all(number.exact == (one["n"] is None) for number in numbers)
        assert kind == "verify" or all(math.isfinite(number.value) for number in numbers) or "uniform" in name
    for name in class_of({"kind": kind}).main:
        assert name in promised
    assert set(found["versions"]) == {"python", "posbias", "numpy", *class_of({"kind": kind}).packages}
    assert found["cost"]["seconds"] > 0
    assert found["cost"]["peak_memory"] > 1e7
    assert json.loads(dump_json(found)) == found
    if kind in ("simulate", "train", "measure"):
        assert heard[-1].done == heard[-1].total


@pytest.mark.parametrize("kind", ["simulate", "train", "verify", "predict"])
def test_a_verb_finds_the_same_again_and_the_seed_matters(performed, kind):
    found = performed(kind)[0]["result"]
    spec = {"kind": kind, **SPECS[kind]}
    assert perform(spec, 3)["result"] == found
    assert (perform(spec, 4)["result"] == found) == (kind == "predict")


def test_a_simulation_is_the_simulation(performed):
    quantities = performed("simulate")[0]["result"]["quantities"]
    result = simulate_recency(RecencyModel(depth=2, tokens=5), 300, seed=3)
    for layer, estimate in enumerate(result.recency_probability):
        number = estimate_at(quantities, f"recency_probability.{layer}")
        assert (number.value, number.se, number.n) == (estimate.value, estimate.se, 300)
    np.testing.assert_array_equal(quantities["last_attention"]["value"], result.mean_attention.value[-1, -1])
    np.testing.assert_array_equal(quantities["last_scores"]["se"], result.mean_scores.se[-1, -1])
    np.testing.assert_array_equal(
        quantities["recency_by_distance"]["value"], result.by_distance.value[-1, 1:4]
    )
    least = result.exhibits_recency()[1].least
    assert estimate_at(quantities, "least_step.-1") == Estimate(least.value, least.se, 300)


def test_a_prediction_is_the_rollout(performed):
    architecture = Architecture(3, (Layer(heads=2, positional=ALiBi()),), ConstantMixing(0.2))
    quantities = performed("predict")[0]["result"]["quantities"]
    profile = influence(architecture, 40)
    np.testing.assert_array_equal(quantities["profile"]["value"], profile.mass)
    assert quantities["trough"] == {"value": profile.summary.trough, "se": None, "n": None}
    assert quantities["ratio_middle"]["value"] == profile.summary.ratio[1]
    verdict = (quantities["favours_first"]["value"], quantities["favours_last"]["value"])
    words = {(1, 1): "U", (1, 0): "primacy", (0, 1): "recency"}
    assert words.get(verdict, "flat") == profile.summary.verdict
    mixed = perform({"kind": "predict", **SPECS["predict"], "mixing": {"kind": "constant", "value": 0.9}}, 0)
    other = influence(Architecture(3, architecture.layers, ConstantMixing(0.9)), 40)
    np.testing.assert_array_equal(mixed["result"]["quantities"]["profile"]["value"], other.mass)


def test_a_trained_network_is_that_of_its_seed(performed):
    from posbias.training import Experiment, Network, RetrievalTask, evaluate, train

    one = Experiment(RetrievalTask(**TASK), Network(depth=1), seeds=(3,), iterations=20, batch=8)
    evaluation = evaluate(train(one, threads=1), 40)
    quantities = performed("train")[0]["result"]["quantities"]
    for name, gap in evaluation.gaps.items():
        found = estimate_at(quantities, f"gap_{name.replace('-', '_')}")
        estimate = gap.over_all.over_sequences
        assert (found.value, found.se, found.n) == (estimate.value, estimate.se, 40)
    assert quantities["accuracy_by_position"]["value"] == evaluation.accuracy_by_position[0].tolist()
    share = evaluation.accuracy_by_position[0, 1]
    likely = (40 * share + 1) / 42
    assert quantities["accuracy_by_position"]["se"][1] == pytest.approx(math.sqrt(likely * (1 - likely) / 39))
    assert min(quantities["accuracy_by_position"]["se"]) > 0.0


def test_a_measured_model_is_what_measuring_says(performed):
    from posbias.comparison.predictors import measured_mixing, predictions
    from posbias.comparison.scores import compare_all
    from posbias.measurement import measure
    from posbias.profiles.profile import measured_influence

    data = measure("tiny-alibi", prompts=4, tokens=32, seed=3)
    found = performed("measure")[0]["result"]
    quantities = found["quantities"]
    np.testing.assert_allclose(quantities["mixing"]["value"], measured_mixing(data), rtol=1e-6)
    spread = data["mixing"].values.std(axis=0, ddof=1) / math.sqrt(4)
    np.testing.assert_allclose(quantities["mixing"]["se"], spread, rtol=1e-4)
    profile = measured_influence(data)
    np.testing.assert_allclose(quantities["profile"]["value"], profile.mass, rtol=1e-4)
    share = profile.share(0, profile.summary.ends)
    assert quantities["first_mass"]["value"] == pytest.approx(share.value, rel=1e-4)
    assert quantities["first_mass"]["se"] == pytest.approx(share.se, rel=1e-3)
    assert quantities["trough_depth"]["value"] == pytest.approx(profile.summary.trough_depth, rel=1e-3)
    compared = compare_all(predictions(data), profile, seed=3)
    for name, agreement in compared.agreements.items():
        given = quantities[f"spearman_{name}"]
        assert given["value"] == pytest.approx(agreement.spearman.value, abs=1e-3)
        assert given["se"] == pytest.approx(agreement.spearman.se, abs=2e-3)
    assert quantities["spearman_uniform"]["value"] is None
    assert found["about"]["checksum"] == data.attrs["checksum"]
    assert found["about"]["text_sha256"] == data.attrs["text_sha256"]


def test_a_verified_statement_is_what_verifying_says(performed):
    (finding,) = verify(select(STATEMENTS, ["wu-4.1"]), instances=6, seed=3)
    quantities = performed("verify")[0]["result"]["quantities"]
    assert quantities["slack"]["value"] == finding.as_printed.slack
    assert quantities["holds"]["value"] == float(finding.as_printed.survived)
    assert quantities["instances"]["value"] == finding.as_printed.instances
    assert (quantities["amended_slack"]["value"] is None) == (finding.corrected is None)
    assert performed("verify")[0]["result"]["about"]["verdict"] == finding.verdict


def test_values_in_python_are_those_of_a_file():
    assert decode_verb({"kind": "simulate", "model": {"dimension": 8}}) == Simulate(RecencyModel(dimension=8))
    assert decode_verb({"kind": "predict", "architecture": {"depth": 2}}) == Predict(Architecture(2))


def test_words_for_masks_are_what_they_stand_for():
    words = decode_verb({"kind": "train", "network": {"mask": "window=5", "positional": "rope"}})
    tables = decode_verb({"kind": "train", "network": {"mask": {"kind": "sliding_window", "width": 5}, "positional": {"kind": "rotary"}}})  # noqa: E501  # fmt: skip
    assert words == tables
    assert words.network["mask"] == {"kind": "sliding_window", "width": 5, "sinks": 0}
    assert words.experiment(7).seeds == (7,)
