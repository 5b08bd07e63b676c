"""What can be measured of each family of transformers: nothing is measured wrong."""

from dataclasses import replace

import by_hand
import numpy as np
import pytest
import torch
import transformers
import zoo

from families import families
from posbias.core.progress import muted
from posbias.measurement.models.families import decoder_layers

FEW = {
    "llama": "measured",
    "deepseek_v3": "measured",
    "gpt_neox_japanese": "measured",
    "blenderbot-small": "measured",
    "lfm2": "attention layers only",
    "deepseek_v4": "influence only",
    "mamba": "influence only",
}
FEW_ENCODERS = {
    "roberta": "measured",
    "convbert": "measured",
    "modernbert": "measured",
    "mobilebert": "all but λ",
    "fnet": "influence only",
    "perceiver": "refused",
}


@pytest.fixture(autouse=True)
def silence():
    before = transformers.logging.get_verbosity()
    with muted():
        zoo.quiet()
        yield
    transformers.logging.set_verbosity(before)


@pytest.mark.parametrize("family", FEW)
def test_a_causal_family_is_measured_as_far_as_the_page_says(family):
    found = zoo.causal(family)
    assert found.verdict == FEW[family], found


@pytest.mark.parametrize("family", FEW_ENCODERS)
def test_an_encoder_is_seen_as_far_as_the_page_says(family):
    found = zoo.encoder(family)
    assert found.verdict == FEW_ENCODERS[family], found


def test_weights_switched_off_give_what_a_hook_sees():
    """In a Llama nothing stands between attention and stream, so that a hook on the attention is enough."""
    model, ids = zoo.tiny("llama"), torch.arange(3, 23)
    kept = []
    hooks = [
        hooked.register_forward_hook(
            lambda module, given, named, made: kept.append(made[0]), with_kwargs=True
        )
        for layer in decoder_layers(model)
        for hooked in (layer.input_layernorm, layer.self_attn)
    ]
    streams = []
    hooks += [
        layer.register_forward_pre_hook(lambda module, given: streams.append(given[0][0]))
        for layer in decoder_layers(model)
    ]
    before = {name: one.clone() for name, one in model.state_dict().items()}
    with torch.no_grad():
        model(ids[None], use_cache=False)
    for hook in hooks:
        hook.remove()
    sizes = [
        (float(x.double().norm()), float(a.double().norm())) for x, a in zip(streams, kept[1::2], strict=True)
    ]
    found = [one.mixing for one in by_hand.mixings(model, ids)]
    np.testing.assert_allclose(found, [a / (x + a) for x, a in sizes], rtol=1e-5)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


def test_what_deviates_is_wrong():
    model, ids = zoo.tiny("llama"), torch.arange(3, 23)
    seen, _ = zoo.layers_seen(model, "llama", ids)
    assert zoo.of_layers(model, ids, seen) == []
    other = {**seen, 3: replace(seen[3], update=1.01 * seen[3].update)}
    (fault,) = zoo.of_layers(model, ids, other)
    assert fault.startswith("λ of layer 3 is 0.")
    scores = replace(seen[2].scores, attention=seen[2].scores.attention.roll(1, 0))
    (fault,) = zoo.of_layers(model, ids, {**seen, 2: replace(seen[2], scores=scores)})
    assert fault == "attention of layer 2 is not the model's"
    plain = by_hand.influence(model, ids).numpy()
    assert zoo.of_influence(model, ids, plain) == []
    assert zoo.of_influence(model, ids, 1.01 * plain)


@pytest.mark.slow
def test_nothing_is_measured_wrong():
    decoders = [zoo.causal(family) for family in families()]
    encoders = [zoo.encoder(family) for family in zoo.encoders()]
    assert not [one for one in (*decoders, *encoders) if one.verdict == "wrong"]
    measured = sum(one.verdict == "measured" for one in decoders)
    assert measured > 80
    assert f"| measured | {measured} |" in zoo.page(decoders, encoders)
