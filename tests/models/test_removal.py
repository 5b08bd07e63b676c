"""Keys taken out of attention: against a plain loop, to the bit where none is, and as a capture sees it."""

import numpy as np
import pytest
import torch
from tiny import llama, word_tokenizer

from posbias import measure
from posbias.core.errors import ModelError
from posbias.measurement.capture.forward import Capture
from posbias.measurement.capture.removal import altered, column, kept_out, masked, strongest
from posbias.measurement.models.loading import LoadedModel
from posbias.measurement.quantities.influence import gradients, predict

IDS = torch.tensor([7, 3, 9, 3, 22, 41, 5, 17, 30, 2, 11, 48])
WAYS = {
    "kept out": kept_out(column(0)),
    "masked": masked(column(0)),
    "early": kept_out(column(4)),
    "strongest": kept_out(strongest),
}


@pytest.fixture(scope="module")
def loaded():
    return LoadedModel.of(llama().double(), word_tokenizer(), "random")


def seen_in(loaded, way):
    found = []
    with altered(loaded.model, way), torch.no_grad(), Capture(loaded.model, loaded.family, found.append):
        outputs = predict(loaded.model, IDS).outputs.detach()
    return found, outputs


def plain_row(logits, values, name, query):
    """What one head gives one query, written out: a share for every key it sees, and what the shares carry."""
    weights = [np.exp(logits[query, key] - logits[query, : query + 1].max()) for key in range(query + 1)]
    out = {"kept out": 0, "masked": 0, "early": 4}.get(name)
    if name == "strongest" and query > 0:
        out = max(range(1, query + 1), key=lambda key: weights[key])
    taken = out is not None and query > out if name != "strongest" else query > 0
    total = sum(
        weight for key, weight in enumerate(weights) if not (taken and key == out and name == "masked")
    )
    mixed = np.zeros(values.shape[1])
    for key, weight in enumerate(weights):
        if not (taken and key == out):
            mixed += weight / total * values[key]
    return mixed


@pytest.mark.parametrize("name", WAYS)
def test_a_layer_gives_what_a_plain_loop_gives(loaded, name):
    """In the bottom layer, which both models enter alike, from the logits and values of the unaltered one."""
    plain, _ = seen_in(loaded, None)
    found, _ = seen_in(loaded, WAYS[name].only(0))
    logits, values = plain[0].logits.numpy(), plain[0].values.numpy()
    rows = [
        np.concatenate([plain_row(one, each, name, query) for one, each in zip(logits, values, strict=True)])
        for query in range(len(IDS))
    ]
    np.testing.assert_allclose(found[0].mixed.numpy(), rows, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", WAYS)
def test_rows_lose_what_is_kept_out_and_nothing_else(loaded, name):
    found, _ = seen_in(loaded, WAYS[name])
    plain, _ = seen_in(loaded, None)
    lost = 1 - found[0].attention.sum(dim=-1).numpy()
    attention = plain[0].logits.softmax(dim=-1).numpy()  # the model's own is in float32
    wanted = {
        "kept out": attention[:, :, 0] * (np.arange(len(IDS)) > 0),
        "masked": np.zeros_like(lost),
        "early": attention[:, :, 4] * (np.arange(len(IDS)) > 4),
        "strongest": attention[:, :, 1:].max(axis=2) * (np.arange(len(IDS)) > 0),
    }[name]
    np.testing.assert_allclose(lost, wanted, atol=1e-12)


def test_the_token_whose_value_is_kept_out_stays_as_it_was(loaded):
    plain, outputs = seen_in(loaded, None)
    for name in ("kept out", "masked", "strongest"):
        found, other = seen_in(loaded, WAYS[name])
        for one, before in zip(found, plain, strict=True):
            assert torch.equal(one.stream[0], before.stream[0])
        assert torch.allclose(other[0], outputs[0], rtol=0, atol=1e-12)
        assert not torch.allclose(other[1:], outputs[1:], rtol=0, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_where_nothing_is_taken_out_outputs_and_gradients_are_the_same_bits(dtype):
    model = llama().to(dtype)
    answers = []
    for way in (None, kept_out(column(0)).only()):
        with altered(model, way):
            prediction = predict(model, IDS)
            answers.append((prediction.outputs.detach(), gradients(prediction, IDS)["influence"]))
    (outputs, influence), (others, other) = answers
    assert torch.equal(outputs, others)
    assert np.array_equal(influence, other)


@pytest.mark.parametrize("name", WAYS)
def test_gradients_are_those_of_the_altered_attention(name):
    """Against differences, by all its factors: the key that is kept out still decides how much is."""
    random = torch.Generator().manual_seed(2)
    factors = [torch.randn(1, heads, 7, 3, dtype=torch.float64, generator=random) for heads in (4, 2, 2)]
    later = torch.full((7, 7), torch.finfo(torch.float64).min, dtype=torch.float64).triu(1)

    def attend(query, key, value):
        return WAYS[name](None, query, key, value, later[None, None], 0.6)[0]

    assert torch.autograd.gradcheck(attend, [factor.requires_grad_() for factor in factors])
    slopes = torch.autograd.grad(attend(*factors)[0, 1:].square().sum(), factors)
    key, value = (bool(slope[0, :, 0].any()) for slope in slopes[1:])
    assert (key, value) == {"kept out": (True, False), "masked": (False, False)}.get(name, (True, True))


def test_a_measurement_sees_the_altered_attention(tmp_path):
    """The capture's self-check passes, and the averaged kernel has no first column but its rows' rest."""
    text = tmp_path / "words.txt"
    text.write_text(" ".join(f"w{number * 7 % 50}" for number in range(200)))
    given = {"text": text, "tokens": 16, "prompts": 4, "tokenizer": word_tokenizer()}
    model = llama()
    plain = measure(model, **given)
    with altered(model, WAYS["kept out"]):
        found = measure(model, **given)
    kernel = found["kernel"].values
    assert not kernel[:, 1:, 0].any()
    np.testing.assert_allclose(1 - kernel[0].sum(axis=1)[1:], plain["kernel"].values[0, 1:, 0], atol=1e-6)
    with altered(model, WAYS["masked"]):
        found = measure(model, **given)
    assert not found["kernel"].values[:, 1:, 0].any()
    np.testing.assert_allclose(found["kernel"].values.sum(axis=2), 1, atol=1e-6)
    assert np.array_equal(measure(model, **given)["kernel"].values, plain["kernel"].values)


def test_other_attention_is_refused():
    model = llama()
    model.set_attn_implementation("sdpa")
    with (
        pytest.raises(ModelError, match="attention 'sdpa' given, 'eager' needed"),
        altered(model, WAYS["masked"]),
    ):
        pass


def test_a_masked_first_key_in_all_layers_is_the_text_from_its_second_token(loaded):
    """Positions are relative here, so the model without key 0 is the model that begins one token later."""
    _, outputs = seen_in(loaded, WAYS["masked"])
    with torch.no_grad():
        later = predict(loaded.model, IDS[1:]).outputs
    torch.testing.assert_close(outputs[1:], later, rtol=1e-4, atol=1e-4)
