"""What a cell of the sink taken out finds, against plain computation on a random Llama."""

import numpy as np
import pytest
import scipy.stats
import torch
from small_llama import llama, word_tokenizer

from posbias import measure
from posbias.comparison.held_out import half
from posbias.measurement.capture.forward import Capture, SeenLayer
from posbias.measurement.capture.removal import altered
from posbias.measurement.job import Request
from posbias.measurement.models.loading import LoadedModel
from posbias.measurement.quantities.influence import predict
from posbias_papers.extensions.sink_trials import (
    KEPT_OUT,
    MASKED,
    PLAIN,
    ROLLED,
    WAYS,
    alteration,
    given_by_layer,
    losses,
    readings,
    readings_in,
    rollout,
    sink_trial,
)

TOKENS, PROMPTS = 14, 6


@pytest.fixture(scope="module")
def loaded():
    return LoadedModel.of(llama(), word_tokenizer(), "random")


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    text = tmp_path_factory.mktemp("text") / "words.txt"
    text.write_text(" ".join(f"w{number * number % 47}" for number in range(300)))
    return {"text": text, "tokens": TOKENS, "prompts": PROMPTS, "seed": 5}


@pytest.fixture(scope="module")
def ids(loaded, asked):
    return Request(**asked).draw(loaded).ids


@pytest.fixture(scope="module")
def read(loaded, ids, measured):
    return {
        way: readings_in(measured[way], way) if way in ROLLED else readings(loaded, ids, way) for way in WAYS
    }


@pytest.fixture(scope="module")
def measured(loaded, asked):
    found = {}
    for way in ROLLED:
        with altered(loaded.model, alteration(way)):
            found[way] = measure(loaded, **asked)
    return found


@pytest.fixture(scope="module")
def given(loaded, ids):
    return given_by_layer(loaded, ids)


@pytest.fixture(scope="module")
def found(measured, read, given):
    return sink_trial(measured, read, given)


def test_readings_are_those_of_a_measurement(loaded, ids, measured, read):
    told = readings(loaded, ids, KEPT_OUT)
    np.testing.assert_allclose(told["influence"], read[KEPT_OUT]["influence"], rtol=1e-5)
    np.testing.assert_allclose(told["loss"], read[KEPT_OUT]["loss"], rtol=1e-6)
    np.testing.assert_allclose(told["share"], read[KEPT_OUT]["share"], rtol=1e-4, atol=1e-6)
    share = measured[PLAIN]["sink_share"].values.mean(axis=1)
    np.testing.assert_allclose(read[PLAIN]["share"], share, rtol=1e-4)
    np.testing.assert_allclose(read[MASKED]["share"], 0, atol=1e-6)


def test_what_is_given_is_what_an_update_lacks_once_it_is_kept_out(loaded, ids, given):
    """In the bottom layer, whose queries and keys are the same in both."""
    ratios = []
    for one in torch.from_numpy(ids):
        updates: list[torch.Tensor] = []
        for way in (PLAIN, KEPT_OUT):
            layers: list[SeenLayer] = []
            with altered(loaded.model, alteration(way)), Capture(loaded.model, loaded.family, layers.append):
                predict(loaded.model, one)
            updates.append(layers[0].update[1:].double())
        plain, left = updates
        ratios.append(float((plain - left).norm(dim=1).sum() / plain.norm(dim=1).sum()))
    np.testing.assert_allclose(given[0], np.mean(ratios), rtol=1e-4)


def test_losses_of_all_layers_are_those_of_the_way(loaded, ids, read):
    every = range(loaded.model.config.num_hidden_layers)
    np.testing.assert_allclose(losses(loaded, ids, KEPT_OUT, *every), read[KEPT_OUT]["loss"], rtol=1e-5)
    np.testing.assert_allclose(losses(loaded, ids, PLAIN), read[PLAIN]["loss"], rtol=1e-5)
    assert not np.allclose(losses(loaded, ids, KEPT_OUT, 1), read[PLAIN]["loss"], rtol=1e-4)


def test_scores_are_plain_ones(read, measured, found):
    mean = {way: read[way]["influence"].mean(axis=0) for way in WAYS}
    for way in WAYS[1:]:
        rank = np.corrcoef(scipy.stats.rankdata(mean[way][1:]), scipy.stats.rankdata(mean[PLAIN][1:]))[0, 1]
        assert found["influence"][way]["spearman_without_first"][0] == pytest.approx(rank, abs=1e-4)
        cost = (read[way]["loss"] - read[PLAIN]["loss"]).mean()
        assert found["loss"][way][0] == pytest.approx(cost, rel=1e-4)
    place = np.arange(TOKENS) / (TOKENS - 1)
    for way in ROLLED:
        told = []
        for even in (True, False):
            one, rest = (half(measured[way], part) for part in (even, not even))
            row = np.eye(TOKENS)[-1]
            layers = zip(one["kernel"].values[::-1], one["mixing"].values.mean(axis=0)[::-1], strict=True)
            for kernel, mixing in layers:
                row = row @ ((1 - mixing) * np.eye(TOKENS) + mixing * kernel)
            if way == KEPT_OUT:
                assert row[0] == 0
            influence = rest["influence"].values.mean(axis=0)
            told.append(scipy.stats.wasserstein_distance(place, place, row, influence))
        score = found["rollouts"][f"measured_kernels, {way}"]["wasserstein"][0]
        assert score == pytest.approx(np.mean(told), abs=1e-4)


def test_a_difference_is_the_first_less_the_second(found):
    for kind, among in (("influence", "influence_differences"), ("rollouts", "rollout_differences")):
        for name, told in found[among].items():
            more, less = name.split(" - ")
            value = found[kind][more]["wasserstein"][0] - found[kind][less]["wasserstein"][0]
            assert told["wasserstein"][0] == pytest.approx(value, abs=1e-4)
            assert told["wasserstein"][1] >= 0


def test_the_error_of_a_difference_leaves_one_prompt_out_of_both(read, found):
    """Jackknife over prompts, written out."""
    shares = read[KEPT_OUT]["influence"], read[PLAIN]["influence"]
    without = []
    for prompt in range(PROMPTS):
        kept = [np.delete(each, prompt, axis=0).mean(axis=0)[1:] for each in shares]
        without.append(np.corrcoef(*map(scipy.stats.rankdata, kept))[0, 1])
    se = np.sqrt((PROMPTS - 1) * np.var(without))
    assert found["influence"][KEPT_OUT]["spearman_without_first"][1] == pytest.approx(se, rel=1e-3)


def test_a_fitted_rollout_has_the_mass_of_the_measured_rows(measured, found):
    """Row sums below one are lost mass, and the first column is empty."""
    row = rollout(measured[KEPT_OUT], "fitted")
    assert row[0] == 0 < row.sum() < 1
    assert rollout(measured[PLAIN], "fitted").sum() == pytest.approx(1, abs=1e-5)
