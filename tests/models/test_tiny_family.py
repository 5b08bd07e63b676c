"""The small family of our own: encodings against plain loops, training repeatable, models as shipped."""

import json
import math

import numpy as np
import pytest
import torch
from refused import refused
from scipy.special import erf
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from posbias.core.errors import InvalidValueError
from posbias.core.packages import bundled
from posbias.measurement.models.tiny import ENCODINGS, TinyConfig, TinyForCausalLM, register
from posbias.measurement.texts.corpora import read_text
from tiny_models import corpus as texts
from tiny_models.recipe import Training, held_out_loss, loss_of
from tiny_models.train import Run

register()
SHIPPED = sorted(bundled().values())
SMALL = {
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 16,
}


def small(encoding, attention="eager", **changes):
    """A random model in float64, gains off one, weights wide enough that attention is far from even."""
    window = 3 if encoding == "window" else None
    config = TinyConfig(
        encoding=encoding, sliding_window=window, attn_implementation=attention, **(SMALL | changes)
    )
    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = TinyForCausalLM(config).double().eval()
        for one in model.parameters():
            one.data.normal_(std=0.6) if one.dim() == 2 else one.data.uniform_(0.5, 1.5)
    return model


def ids(length=12, rows=1):
    return torch.from_numpy(np.random.default_rng(7).integers(0, 20, (rows, length)))


def reference(model, tokens):
    """Logits [position, token] of one prompt from the equations, in float64."""
    w, c = {name: one.detach().numpy() for name, one in model.named_parameters()}, model.config
    size, place = c.head_dim, np.arange(len(tokens))
    distance = np.subtract.outer(place, place)
    seen = (distance >= 0) & (distance < (c.sliding_window or len(tokens)))
    slopes = 2.0 ** (-8 * np.arange(1, c.num_attention_heads + 1) / c.num_attention_heads)
    angles = np.outer(place, 10_000.0 ** (-2 * np.arange(size // 2) / size))

    def norm(x, name):
        return w[f"{name}.weight"] * x / np.sqrt((x**2).mean(axis=1, keepdims=True) + c.rms_norm_eps)

    def heads(x, name):
        """[head, position, channel]; channels i and i + size/2 are turned together."""
        y = (x @ w[f"{name}_proj.weight"].T).reshape(len(x), -1, size).swapaxes(0, 1)
        if c.encoding not in ("rope", "window") or name.endswith("v"):
            return y
        turned = (y[..., : size // 2] + 1j * y[..., size // 2 :]) * np.exp(1j * angles)
        return np.concatenate([turned.real, turned.imag], axis=2)

    x = w["model.embed_tokens.weight"][tokens]
    x = x + w["model.embed_positions.weight"][: len(x)] if c.encoding == "learned" else x
    for at in (f"model.layers.{layer}." for layer in range(c.num_hidden_layers)):
        y = norm(x, f"{at}input_layernorm")
        q, k, v = (heads(y, f"{at}self_attn.{name}") for name in "qkv")
        logits = q @ k.swapaxes(1, 2) / math.sqrt(size)
        logits -= (c.encoding == "alibi") * slopes[:, None, None] * distance
        weights = np.where(seen, np.exp(logits), 0.0)
        mixed = (weights / weights.sum(axis=2, keepdims=True) @ v).swapaxes(0, 1).reshape(len(x), -1)
        x = x + mixed @ w[f"{at}self_attn.o_proj.weight"].T
        z = norm(x, f"{at}post_attention_layernorm") @ w[f"{at}mlp.up_proj.weight"].T
        x = x + 0.5 * z * (1 + erf(z / math.sqrt(2))) @ w[f"{at}mlp.down_proj.weight"].T
    return norm(x, "model.norm") @ w["model.embed_tokens.weight"].T


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_model_is_its_equations(encoding, attention):
    model, tokens = small(encoding, attention), ids()
    ours = model(tokens).logits[0].detach().numpy()
    assert np.abs(ours - reference(model, tokens[0].tolist())).max() < 1e-11 * np.abs(ours).max()


def test_embeddings_in_place_of_ids_checkpointing_and_padding_change_nothing():
    tokens = ids()
    for encoding in ENCODINGS:
        model = small(encoding)
        plain = model(tokens).logits
        vectors = model.get_input_embeddings()(tokens)
        assert torch.equal(plain, model(inputs_embeds=vectors).logits)
        # the second is its name before transformers 5.20 or so
        getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
        model.train()
        assert torch.equal(plain, model(tokens).logits)
        model.eval()
        padded = torch.cat([torch.zeros(1, 3, dtype=torch.int64), tokens], dim=1)
        mask = torch.tensor([[0] * 3 + [1] * 12])
        places = torch.arange(-3, 12).clamp(min=0)[None]
        got = model(padded, attention_mask=mask, position_ids=places).logits[:, 3:]
        assert (got - plain).abs().max() < 1e-11


@pytest.mark.parametrize(
    ("fields", "argument"),
    [
        ({"encoding": "alibii"}, "encoding"),
        ({"encoding": "window"}, "sliding_window"),
        ({"encoding": "rope", "sliding_window": 8}, "sliding_window"),
        ({"num_attention_heads": 3}, "num_attention_heads"),
    ],
)
def test_a_wrong_configuration_is_refused(fields, argument):
    refused(argument, lambda: TinyConfig(**fields))


def test_positions_beyond_the_learned_ones_and_ambiguous_inputs_are_refused():
    with pytest.raises(InvalidValueError):
        small("learned")(ids(17))
    with pytest.raises(InvalidValueError):
        small("nope")()


# ── training ──

QUICK = {"vocabulary": 280, "hidden": 16, "perceptron": 24, "layers": 2, "heads": 2, "context": 16}
QUICK |= {"batch": 2, "warmup": 2, "log_every": 2, "rate": 0.02}


def test_training_learns_and_repeats_itself(tmp_path):
    # English that is not held out; the bundled text is long, a piece of it is enough to look at
    words = "\n".join(str(one.__doc__) for one in vars(torch.nn.functional).values())[:9000]
    corpus = texts.without_bundled({"a": words})
    corpus = texts.Corpus(corpus.documents, corpus.held_out[:3000], corpus.left_out)
    tokenizer = texts.train_tokenizer(corpus, QUICK["vocabulary"], QUICK["context"])
    training = Training("learned", steps=30, window=4, **QUICK)
    runs = [Run(training, corpus, tokenizer) for _ in range(2)]
    before = held_out_loss(runs[0].model, runs[0].held_out)
    for run in runs:
        run.go()
    log = runs[0].log
    assert log[-1]["step"] == 30
    assert log[-1]["loss"] < log[0]["loss"] - 0.5
    assert held_out_loss(runs[0].model, runs[0].held_out) < before - 0.3
    assert [line["loss"] for line in log] == [line["loss"] for line in runs[1].log]
    loss = runs[0].ship(tmp_path / "tiny")["held_out_loss"]
    read = AutoModelForCausalLM.from_pretrained(tmp_path / "tiny", dtype=torch.float32, local_files_only=True)
    assert held_out_loss(read.eval(), runs[0].held_out) == pytest.approx(loss)


# ── as shipped ──


def test_the_shipped_models_differ_in_their_encoding_alone():
    assert SHIPPED, "no trained model is shipped"
    size = sum(file.stat().st_size for folder in SHIPPED for file in folder.iterdir())
    assert size < 14e6
    heads = [json.loads((folder / "training.json").read_text()) for folder in SHIPPED]
    assert {folder.name for folder in SHIPPED} == {f"tiny-{one['training']['encoding']}" for one in heads}
    for one in heads:
        del one["training"]["encoding"]
        assert one == heads[0]
    for folder in SHIPPED:
        assert (folder / "tokenizer.json").read_bytes() == (SHIPPED[0] / "tokenizer.json").read_bytes()
    assert len(heads[0]["text"]["left_out"]) == 12


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_a_shipped_model_is_what_its_log_says(folder):
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    assert folder.name == f"tiny-{config.encoding}"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    held_out = read_text(None).content
    assert tokenizer.decode(tokenizer(held_out[:2000])["input_ids"]) == held_out[:2000]
    # logged before the weights were rounded, on the same first windows
    loss = held_out_loss(model, texts.tokens_of(tokenizer, held_out[:60_000]), 32)
    assert abs(loss - log[-2]["held_out_loss"]) < 2e-3
    assert log[-1]["held_out_perplexity"] < 0.2 * config.vocab_size
    # it uses its context: late tokens are easier than early ones
    shuffled = np.random.default_rng(0).permuted(np.arange(256))
    stream = texts.tokens_of(tokenizer, held_out[:30_000])[: 257 * 16].reshape(16, 257)
    with torch.no_grad():
        scrambled = float(loss_of(model, torch.from_numpy(np.c_[stream[:, shuffled], stream[:, -1:]])))
    assert scrambled > loss + 1


def test_labels_give_the_loss_that_the_logits_have():
    model, tokens = small("rope"), ids(rows=2)
    labels = tokens.clone()
    labels[0, 5] = -100
    with torch.no_grad():
        said, without = model(tokens, labels=labels), model(tokens)
    expected = torch.nn.functional.cross_entropy(said.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    assert float(said.loss) == pytest.approx(float(expected), rel=1e-6)
    assert without.loss is None
