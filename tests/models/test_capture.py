"""The capture sees what the model computes and changes nothing, in every family, and takes positions out of it.

References share no code with the capture: the attention that a model returns, λ and updates by switching parts of
a layer off (`by_hand.py`), layers run again without rotation, families' own ALiBi.
"""

import by_hand
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import CASES, RUNS, configuration, seen_layers, specimen, tiny_model
from torch.utils.checkpoint import checkpoint
from transformers.models.bloom.modeling_bloom import build_alibi_tensor as bloom_alibi
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor as mpt_alibi

from posbias.core.errors import ModelError
from posbias.measurement import LoadedModel, selfcheck
from posbias.measurement.capture.forward import Capture
from posbias.measurement.capture.scores import Factored, Given
from posbias.measurement.capture.tracer import Product, mark_of, scored
from posbias.measurement.models.families import FAMILIES, decoder_layers, generic
from posbias.measurement.quantities.attention import hidden
from posbias.measurement.quantities.influence import predict

KINDS = {case: FAMILIES[case[0]].positional_kind(configuration(*case)) for case in CASES}
BOTH = [case for case in CASES if len(FAMILIES[case[0]].attention) == 2]
FOLLOWED = ("gemma2", "gemma3_text", "olmo2", "granite")
"""Families in which a norm or a factor comes after the output projection."""
PRECISE = ("llama", "gemma3_text", "gpt_neox")
"""Families that are tried in half precision every time."""


@pytest.fixture
def prompt():
    """20 tokens, longer than every window."""
    return torch.tensor([17, 4, 33, 8, 60, 21, 5, 5, 48, 12, 39, 7, 26, 3, 55, 30, 41, 9, 14, 62])


def contents(seen):
    return seen.content.dense()[0]


# ── every family ──


@pytest.mark.parametrize(("family", "number", "attention"), RUNS)
def test_what_is_captured_is_what_the_model_computes(family, number, attention, prompt):
    """The same bits of outputs and gradients, attention to 1e-5, λ as by hand, A V W_O as update up to a bias."""
    loaded = tiny_model(family, number, attention)

    def gradient(prediction):
        return torch.autograd.grad(prediction.outputs[-1].sum(), prediction.embeddings)[0]

    plain, layers = predict(loaded.model, prompt), []
    with Capture(loaded.model, loaded.family, layers.append):
        prediction = predict(loaded.model, prompt)
    assert torch.equal(prediction.outputs, plain.outputs)
    assert torch.equal(gradient(prediction), gradient(plain))
    own = by_hand.own_attention(loaded.model, prompt) if attention == "eager" else None
    assert own or attention == "sdpa"
    by_layer = by_hand.mixings(loaded.model, prompt)
    assert [seen.layer for seen in layers] == [0, 1, 2]
    for seen, hand in zip(layers, by_layer, strict=True):
        assert isinstance(seen.scores, Given if attention == "eager" else Factored)
        assert seen.attention.std() > 0.02, "uniform attention would prove little"
        if own:
            used = own[seen.layer][..., :20]
            assert torch.allclose(seen.attention.double(), used, atol=1e-5)
            assert not used[seen.logits.isneginf()].any()
        assert torch.equal(contents(seen).isneginf(), seen.logits.isneginf())
        stream, update = seen.stream.double(), seen.update.double()
        assert float(update.norm() / (stream.norm() + update.norm())) == pytest.approx(hand.mixing, rel=1e-4)
        assert 0.02 < hand.mixing < 0.98
        made = (seen.attention.double() @ seen.values.double()).transpose(0, 1).flatten(1)
        assert torch.allclose(made, seen.mixed.double(), atol=1e-5 * float(seen.values.abs().max()))
        if family not in FOLLOWED:
            bias = update - made @ seen.output_weight.double().T
            assert torch.allclose(bias, bias[:1].expand_as(bias), atol=1e-5 * float(update.abs().max()))
    report = selfcheck(loaded, prompt)
    assert (report["layers"], report["content"], report["attention"]) == (3, 3, attention)
    assert report["outputs_identical"] is True
    assert report["causal"] is FAMILIES[family].causal
    assert max(report[f"{name}_deviation"] for name in ("max", "mixed", "rotation")) < 1e-5


@pytest.mark.parametrize(("family", "number"), BOTH)
def test_eager_and_fused_attention_are_seen_alike(family, number, prompt):
    eager, fused = (seen_layers(tiny_model(family, number, each), prompt) for each in ("eager", "sdpa"))
    for one, other in zip(eager, fused, strict=True):
        assert torch.allclose(one.attention, other.attention, atol=2e-5)
        assert torch.equal(one.logits.isneginf(), other.logits.isneginf())
        visible = ~one.logits.isneginf()
        close = {"rtol": 0, "atol": 1e-5 * float(one.logits[visible].abs().max())}
        assert torch.allclose(one.logits[visible], other.logits[visible], **close)
        assert torch.allclose(contents(one)[visible], contents(other)[visible], **close)


def test_falcon_counts_alibi_twice_under_eager_attention(prompt):
    """The defect that its row states: when this fails, transformers has mended it and the row may change."""
    with torch.no_grad():
        eager, fused = (specimen("falcon", 0, each)(prompt[None]).logits for each in ("eager", "sdpa"))
    assert (eager - fused).abs().max() > 0.5


# ── positions taken out ──


def unturned(given):
    """The rotation argument of a layer, turned by no angle."""
    if isinstance(given, torch.Tensor):
        return torch.polar(given.abs(), torch.zeros_like(given.abs()))
    cos, sin = given
    return (cos**2 + sin**2).sqrt(), sin * 0


@pytest.mark.parametrize(
    "case", [c for c in CASES if KINDS[c] in ("rotary", "mixed") and c[0] not in ("falcon", "gptj")]
)
def test_content_is_the_attention_run_again_without_rotation(case, prompt):
    """Layers called again with cosine √(cos² + sin²) and sine 0: their weights are the softmax of content."""
    loaded = tiny_model(*case, "eager")
    path = {"gpt_neox": "attention"}.get(case[0], "self_attn")
    arguments, weights = [], []
    hooks = [
        layer.register_forward_pre_hook(lambda m, *given: arguments.append((m, *given)), with_kwargs=True)
        for layer in decoder_layers(loaded.model)
    ]
    with torch.no_grad():
        loaded.model(prompt[None], use_cache=False, output_attentions=True)
        for hook in hooks:
            hook.remove()
        for layer, given, named in arguments:
            kept = layer.get_submodule(path).register_forward_hook(
                lambda m, g, out: weights.append(out[1][0])
            )
            layer(*given, **(named | {"position_embeddings": unturned(named["position_embeddings"])}))
            kept.remove()
    seen = seen_layers(loaded, prompt)
    for each, own in zip(seen, weights, strict=True):
        attention = each.content.dense()[1]
        if FAMILIES[case[0]].sinks:
            attention = attention * own.sum(-1, keepdim=True)
        assert torch.allclose(attention, own[..., :20], atol=1e-5)
    expected = {"rotary": [True] * 3, "mixed": [True, False, True]}[KINDS[case]]
    assert [each.turned for each in seen] == expected
    assert [float((e.logits - contents(e))[:, 11, 9].abs().max()) > 1e-3 for e in seen] == expected


def test_content_of_gptj_is_that_of_its_own_table_turned_by_no_angle(prompt):
    loaded = tiny_model("gptj")
    kept = seen_layers(loaded, prompt)
    attention = loaded.model.transformer.h[0].attn
    sin, cos = attention.embed_positions.chunk(2, dim=-1)
    attention.embed_positions = torch.cat([sin * 0, (sin**2 + cos**2).sqrt()], dim=-1)
    own = by_hand.own_attention(loaded.model, prompt)[0].float()
    assert torch.allclose(kept[0].content.dense()[1], own, atol=1e-6)
    assert not torch.allclose(kept[0].attention, own, atol=1e-2)


def test_numbers_that_scores_are_multiplied_by_are_not_rounded():
    scores, number = torch.zeros(1), 19**0.5
    for name, scale in (("mul", number), ("div", 1 / number)):
        assert scored(Product(scores, scores), name, (scores, number), scores).scale == scale
    assert scored(Product(scores, scores), "mul", (scores, torch.ones(2)), scores).scale is None


@pytest.mark.parametrize("case", [c for c in CASES if KINDS[c] in ("learned", "none")])
def test_without_rotation_or_bias_content_is_all(case, prompt):
    for seen in seen_layers(tiny_model(*case), prompt):
        visible = torch.isfinite(seen.logits)
        assert torch.allclose(seen.logits[visible], contents(seen)[visible], atol=1e-5)


def own_bias(config, tokens):
    """ALiBi as the family's own function builds it, [head, key], up to a constant per query."""
    heads = config.num_attention_heads
    if config.model_type == "mpt":
        return mpt_alibi(heads, tokens)[:, 0]
    if config.model_type == "posbias_tiny":
        slopes = torch.tensor([2.0 ** (-8 * (head + 1) / heads) for head in range(heads)])
        return slopes[:, None] * torch.arange(tokens)
    bias = bloom_alibi(torch.ones(1, tokens), heads, torch.float32)[:, 0]
    if config.model_type == "falcon":  # slopes in bfloat16; scores and bias are divided by √channels
        return bias.bfloat16().float() / (config.hidden_size // heads) ** 0.5
    return bias


@pytest.mark.parametrize("case", [c for c in CASES if KINDS[c] == "alibi"])
def test_the_alibi_remainder_is_the_familys_own_bias_whatever_the_prompt(case, prompt):
    loaded, visible = tiny_model(*case), torch.ones(20, 20, dtype=torch.bool).tril()
    bias = own_bias(loaded.model.config, 20)
    expected = (bias[:, None, :] - bias[:, :, None])[:, visible]
    assert expected.min() < -1
    for ids in (prompt, prompt.roll(7)):
        for seen in seen_layers(loaded, ids):
            assert torch.equal(visible, ~seen.logits[0].isneginf())
            close = {"rtol": 0.01 if case[0] == "falcon" else 1e-5}
            close["atol"] = 1e-6 * float(seen.logits[:, visible].abs().max())
            assert torch.allclose((seen.logits - contents(seen))[:, visible], expected, **close)


def test_learned_sinks_take_their_share_and_soft_caps_hold_for_content_too(prompt):
    loaded = tiny_model("gpt_oss")
    for seen, layer in zip(seen_layers(loaded, prompt), decoder_layers(loaded.model), strict=True):
        weight = seen.logits.double().exp().sum(-1)
        share = layer.self_attn.sinks.double().exp()[:, None]
        assert torch.allclose(1 - seen.attention.double().sum(-1), share / (share + weight), atol=1e-5)
        assert (1 - seen.attention.sum(-1)).max() > 0.1
    for seen in seen_layers(tiny_model("gemma2"), prompt):
        assert seen.content.cap == pytest.approx(3.0)
        assert seen.logits.max() <= 3
        assert 2.0 < contents(seen)[torch.isfinite(contents(seen))].abs().max() <= 3


# ── blocks of scores against loops ──


def plain_scores(query, key, scale, cap, mask, causal, shift):
    """Logits and attention by loops over heads, queries and keys, in float64; `mask` is added, −inf hides."""
    heads, tokens, _ = query.shape
    logits = np.full((heads, tokens, tokens), -np.inf)
    attention = np.zeros_like(logits)
    for h in range(heads):
        shared = h * key.shape[0] // heads
        for i in range(tokens):
            for j in range(tokens):
                logit = scale * float(np.dot(query[h, i], key[shared, j]))
                logit = cap * np.tanh(logit / cap) if cap else logit
                logits[h, i, j] = -np.inf if causal and j > i else logit + mask[h, i, j] - shift[h, i]
            weights = np.exp(logits[h, i])
            attention[h, i] = weights / weights.sum()
    return logits, attention


@given(st.data())
@settings(max_examples=40)
def test_factored_rows_equal_the_plain_computation(data):
    draw = data.draw
    groups, shared, tokens = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 9))
    heads, causal = groups * shared, draw(st.booleans())
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    query = torch.randn(heads, tokens, 4, generator=generator)
    key = torch.randn(shared, tokens, 4, generator=generator)
    scale, cap = draw(st.floats(0.1, 2)), draw(st.sampled_from([None, 1.5]))
    kind = draw(st.sampled_from(["none", "boolean", "additive", "hiding", "bias per key"]))
    blind = torch.rand(draw(st.sampled_from([1, heads])), tokens, tokens, generator=generator) < 0.3
    blind &= ~torch.eye(tokens, dtype=torch.bool)
    bias = torch.randn(heads, 1 if kind == "bias per key" else tokens, tokens, generator=generator)
    nothing, lowest = torch.zeros(heads, tokens, tokens), torch.finfo(torch.float32).min
    added, mask = {  # what is added in the plain computation, and the mask as a model gives it
        "none": (nothing, None),
        "boolean": (nothing.masked_fill(blind, -torch.inf), ~blind),
        "hiding": (nothing.masked_fill(blind, -torch.inf), bias.masked_fill(blind, lowest)),
        "additive": (bias.masked_fill(blind, -torch.inf), bias.masked_fill(blind, lowest)),
        "bias per key": (bias.expand(-1, tokens, -1), bias),
    }[kind]
    shift = draw(st.booleans()) * torch.randn(heads, tokens, generator=generator)
    scores = Factored(query, key, scale, mask, kind == "hiding", causal, cap, shift)
    numbers = [query.double().numpy(), key.double().numpy(), scale, cap, added.double().numpy(), causal]
    numbers.append(shift.double().numpy())
    logits, attention = plain_scores(*numbers)
    size = draw(st.integers(1, tokens))
    blocks = list(scores.blocks(size))
    assert [block[0].start for block in blocks] == list(range(0, tokens, size))
    for queries, *found in blocks:
        keys = queries.stop if causal else tokens  # nothing of a block lies behind its last query
        for one, whole, close in zip(found, (logits, attention), (1e-5, 1e-6), strict=True):
            assert one.shape[2] == keys
            np.testing.assert_allclose(one, whole[:, queries, :keys], rtol=1e-5, atol=close)
    np.testing.assert_allclose(scores.diagonal(), np.diagonal(logits, axis1=1, axis2=2), rtol=1e-5, atol=1e-5)


@given(
    st.integers(1, 4), st.integers(1, 12), st.integers(1, 12), st.sampled_from([torch.float32, torch.float16])
)
def test_given_rows_are_slices_with_masks_made_infinite(heads, tokens, size, dtype):
    logits = torch.randn(heads, tokens, tokens, generator=torch.Generator().manual_seed(tokens)).to(dtype)
    later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    masked = logits.masked_fill(later, torch.finfo(dtype).min)
    attention = masked.float().softmax(-1).to(dtype)
    shift = torch.arange(heads * tokens, dtype=torch.float32).reshape(heads, tokens)
    scores = Given(masked, attention, shift)
    expected = (logits.float() - shift[:, :, None]).masked_fill(later, -torch.inf)
    blocks = [block[1:] for block in scores.blocks(size)]
    whole = [torch.cat(parts, dim=1) for parts in zip(*blocks, strict=True)]
    assert torch.equal(whole[0], expected)
    assert torch.equal(whole[1], attention.float())
    assert torch.equal(scores.diagonal(), expected.diagonal(dim1=1, dim2=2))


def test_a_query_that_sees_nothing_has_no_attention():
    query = torch.ones(1, 3, 2)
    blind = torch.tensor([[[True, False, False], [False, False, False], [True, True, True]]])
    attention = Factored(query, query, 1.0, mask=blind).dense()[1]
    assert torch.allclose(attention.sum(-1), torch.tensor([[1.0, 0.0, 1.0]]))
    assert not attention[0, 1].any()


# ── half precision ──


@pytest.mark.parametrize(
    ("family", "number", "attention"),
    [run if run[0] in PRECISE else pytest.param(*run, marks=pytest.mark.slow) for run in RUNS],
)
def test_the_self_check_holds_in_bfloat16_for_every_family(family, number, attention, prompt):
    """Attention is off by half a rounding where it is rounded once, by one where its factors are, never by two."""
    loaded = tiny_model(family, number, attention)
    loaded.model.to(torch.bfloat16)
    found = selfcheck(loaded, prompt)
    assert found["outputs_identical"] is True
    assert 0 < found["max_deviation"] <= 2.0**-8
    assert 0 < found["mixed_deviation"] <= 2 * 2.0**-8
    seen = seen_layers(loaded, prompt)[0]
    assert (seen.stream.dtype, seen.logits.dtype) == (torch.bfloat16, torch.float32)


@pytest.mark.parametrize(("family", "number"), [("mpt", 0), ("mpt", 1), ("gptj", 0), ("gpt2", 1)])
def test_a_half_precision_mask_hides_after_scores_are_upcast(family, number, prompt):
    loaded = tiny_model(family, number)
    loaded.model.to(torch.float16)
    later = torch.ones(20, 20, dtype=torch.bool).triu(1)
    for seen in seen_layers(loaded, prompt):
        assert torch.equal(hidden(seen.logits), later)
        assert seen.content is None or torch.equal(hidden(contents(seen)), later)


# ── whatever runs the layers ──


def test_nothing_stays_hooked_or_marked_after_an_error_inside(ids):
    loaded = tiny_model("gptj")

    def fail(seen):
        assert mark_of(loaded.model.transformer.h[0].attn.embed_positions) is not None
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Capture(loaded.model, loaded.family, fail):
        predict(loaded.model, ids)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in loaded.model.modules())
    assert all(mark_of(tensor) is None for tensor in [*loaded.model.buffers(), *loaded.model.parameters()])


def test_a_layer_that_is_computed_again_is_seen_once(tiny, ids):
    """As activation checkpointing does it: each layer runs a second time in the backward pass."""
    layers = []
    for layer in tiny.model.model.layers:
        forward = layer.forward
        layer.forward = lambda *given, forward=forward, **named: checkpoint(
            forward, *given, use_reentrant=False, **named
        )
    with Capture(tiny.model, tiny.family, layers.append):
        prediction = predict(tiny.model, ids)
        (gradient,) = torch.autograd.grad(prediction.outputs[-1].sum(), prediction.embeddings)
    assert [seen.layer for seen in layers] == [0, 1, 2]
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("family", ["llama", "bloom", "gptj"])
def test_layers_whose_weights_come_and_go_are_seen_alike(family, ids):
    """Weights off the device between uses, as accelerate leaves models larger than one device."""
    import accelerate

    plain, loaded = seen_layers(tiny_model(family), ids), tiny_model(family)
    accelerate.cpu_offload(loaded.model, execution_device=torch.device("cpu"))
    for one, other in zip(plain, seen_layers(loaded, ids), strict=True):
        for name in ("update", "attention", "output_weight"):
            assert torch.equal(getattr(one, name), getattr(other, name))
        assert torch.equal(contents(one), contents(other))


# ── what the self-check refuses ──


def hide_rotation(model):
    """Rotations computed where no layer is given them."""
    stash, trunk = [], model.model
    rotary = trunk.rotary_emb.forward
    trunk.rotary_emb.forward = lambda *given, **named: stash.__setitem__(
        slice(None), [rotary(*given, **named)]
    )
    for layer in trunk.layers:
        forward = layer.forward
        layer.forward = lambda x, forward=forward, **named: forward(x, **named, position_embeddings=stash[0])
        layer.register_forward_pre_hook(
            lambda m, given, named: (given, {k: v for k, v in named.items() if k != "position_embeddings"}),
            with_kwargs=True,
        )


def answer_otherwise(model):
    calls = iter(range(9))
    model.lm_head.register_forward_hook(lambda module, given, made: made + 1e-6 * next(calls))


def break_queries(model):
    model.model.layers[1].self_attn.q_proj.weight.data[0, 0] = torch.inf


def hide_a_key_from_one_head(model):
    def apart(module, given, named):
        mask = named["attention_mask"].repeat(1, 4, 1, 1)
        mask[0, 0, 3, 1] = torch.finfo(mask.dtype).min
        return given, named | {"attention_mask": mask}

    model.model.layers[1].self_attn.register_forward_pre_hook(apart, with_kwargs=True)


@pytest.mark.parametrize("defect", [hide_rotation, answer_otherwise, break_queries, hide_a_key_from_one_head])
def test_a_model_that_is_not_what_its_row_says_is_refused(defect, ids):
    loaded = tiny_model("llama")
    selfcheck(loaded, ids)
    defect(loaded.model)
    with pytest.raises(ModelError, match=r"^model: "):
        selfcheck(loaded, ids)


def test_a_row_that_claims_too_much_is_refused(ids):
    row = FAMILIES["gpt2"].__class__("gpt2", "rotary")
    with pytest.raises(ModelError, match=r"^model: "):
        selfcheck(LoadedModel(specimen("gpt2"), None, row, "gpt2", ""), ids)


@pytest.mark.parametrize("sharper", [1.0, 2.0])
def test_weights_changed_behind_the_softmax_are_refused(sharper, ids, monkeypatch):
    """No attention that can be seen is the one used; with the exponent 1 nothing is changed."""
    loaded = LoadedModel(specimen("gpt_neox"), None, generic("stranger"), "a stranger", "")
    plain = modeling_gpt_neox.eager_attention_forward

    def changed(module, query, key, value, *rest, **named):
        out, weights = plain(module, query, key, value, *rest, **named)
        return out, weights**sharper

    monkeypatch.setattr(modeling_gpt_neox, "eager_attention_forward", changed)
    if sharper == 1.0:
        assert selfcheck(loaded, ids)["layers"] == 3
        return
    with pytest.raises(ModelError, match=r"^model: "):
        selfcheck(loaded, ids)
