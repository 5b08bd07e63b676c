"""What Herasimchyk et al. 2026 say beside their tables: splits of logits, models before training, sizes."""

import numpy as np
import pytest
import torch
import transformers
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from measured import DEPTH, SLOPES, TOKENS, measurement

from posbias.profiles.profile import wasserstein
from posbias.theory.configs import PRESETS
from posbias_papers.herasimchyk2026 import STUDIES
from posbias_papers.herasimchyk2026.before_training import predicted
from posbias_papers.herasimchyk2026.cells import Key
from posbias_papers.herasimchyk2026.levels import architectures
from posbias_papers.herasimchyk2026.measurements import Measurements
from posbias_papers.herasimchyk2026.printed import HUB, TABLE1
from posbias_papers.herasimchyk2026.splits import all_splits, apart, looseness
from posbias_papers.herasimchyk2026.table1 import counted

DISTANCE = np.maximum(np.subtract.outer(np.arange(TOKENS), np.arange(TOKENS)), 0)


def rollout(kernels, mixing):
    """The last row of R_T ⋯ R_1, by the definition."""
    product = np.eye(TOKENS)
    for kernel, lam in zip(kernels, mixing, strict=True):
        product = ((1 - lam) * np.eye(TOKENS) + lam * kernel) @ product
    return product[-1]


def alibi_kernels():
    weights = np.where(np.tri(TOKENS, dtype=bool), np.exp(-SLOPES[:, None, None] * DISTANCE), 0.0)
    return np.tile((weights / weights.sum(axis=-1, keepdims=True)).mean(axis=0), (DEPTH, 1, 1))


@given(st.integers(0, 2**32), st.floats(0, 1))
@examples(10)
def test_a_split_is_as_far_from_the_attention_as_dense_rollouts_say(seed, share):
    cell = measurement()
    other = np.tril(np.random.default_rng(seed).random((DEPTH, TOKENS, TOKENS))) + 1e-9 * np.tri(TOKENS)
    kernels = (1 - share) * alibi_kernels() + share * other / other.sum(axis=-1, keepdims=True)
    cell["kernel"] = ("layer", "query", "key"), kernels
    lam = cell["mixing"].values.mean(axis=0)
    variation = np.mean(
        [
            0.5 * np.abs(kernels[t, i] - alibi_kernels()[t, i]).sum()
            for t in range(DEPTH)
            for i in range(1, TOKENS)
        ]
    )
    expected = float(wasserstein(rollout(alibi_kernels(), lam), rollout(kernels, lam)))
    found = apart(cell, architectures(cell)["b"])
    assert found == pytest.approx((expected, variation), rel=1e-9, abs=1e-12)


def halved(cell):
    """With statistics of both halves of the prompts, which are those of all."""
    names = ["kernel", "positional_distance", "logits_distance", "logits_diagonal", "logits_first_column"]
    names += ["content_mean", "content_diagonal", "content_first_column"]
    return cell.assign({f"{name}_even": cell[name] for name in names})


def test_errors_are_of_the_halves_and_the_claim_compares_with_the_loosest_bias():
    cells = {
        Key("toy", "noise", TOKENS): halved(measurement()),
        Key("rot", "noise", TOKENS): halved(measurement("rot", additive=False, seed=3)),
    }
    cells[Key("toy", "noise", TOKENS)]["kernel"] = ("layer", "query", "key"), alibi_kernels()
    cells[Key("toy", "noise", TOKENS)]["kernel_even"] = ("layer", "query", "key"), alibi_kernels()
    results = Measurements(cells, tokens=TOKENS)
    by_model = {one.model: one for one in all_splits(results) if one.level == "b"}
    assert by_model["toy"].whole == pytest.approx(0, abs=1e-12)  # its attention is that of its slopes
    assert by_model["toy"].rollouts is not None
    assert by_model["rot"].whole > 0.01
    verdict = next(one for one in STUDIES["fig3"].judged(results) if one.id.endswith("fig3/8"))
    assert verdict.verdict == "holds"
    bare = looseness(measurement())  # no halves, no error
    assert [one.rollouts for one in bare] == [None, None]
    alone = Measurements({key: cell for key, cell in cells.items() if key.model == "rot"}, tokens=TOKENS)
    assert not [one for one in STUDIES["fig3"].judged(alone) if one.id.endswith("fig3/8")]


def test_before_training_slopes_are_the_models_and_mixing_is_that_at_initialisation():
    key, rotary = Key("toy", "noise", TOKENS), Key("rot", "noise", TOKENS)
    cells = {key: measurement(), rotary: measurement("rot", additive=False)}
    results = Measurements(cells, tokens=TOKENS)
    lam = [1 / (1 + np.sqrt(1 + 2 * t)) for t in range(DEPTH)]
    assert [*predicted(results)] == [key]
    np.testing.assert_allclose(predicted(results)[key].mass, rollout(alibi_kernels(), lam), rtol=1e-9)
    before, after = STUDIES["fig2"].data(results)["before_training"]
    assert (before["mixing"], after["mixing"]) == ("at initialisation", "measured")
    judged = {one.id: one for one in STUDIES["fig2"].judged(results)}
    effect = judged["herasimchyk2026/fig2/9"].evidence[0].estimate
    assert effect.value == pytest.approx(before["wasserstein"] - after["wasserstein"], abs=1e-12)
    ranked = judged["herasimchyk2026/fig2/8"].evidence[0].estimate
    assert ranked.value == pytest.approx(before["spearman"] - 0.5, abs=1e-12)


CONFIGS = {
    "falcon": lambda width, heads, depth, words: transformers.FalconConfig(
        vocab_size=words, hidden_size=width, num_hidden_layers=depth, num_attention_heads=heads, alibi=True,
        bias=True, multi_query=False, parallel_attn=False, new_decoder_architecture=False,
    ),
    "mpt": lambda width, heads, depth, words: transformers.MptConfig(
        d_model=width, n_heads=heads, n_layers=depth, vocab_size=words
    ),
    "bloom": lambda width, heads, depth, words: transformers.BloomConfig(
        vocab_size=words, hidden_size=width, n_layer=depth, n_head=heads
    ),
}  # fmt: skip


@pytest.mark.parametrize("model", TABLE1)
def test_parameters_are_those_of_the_model_that_transformers_builds(model):
    hub, known = HUB[model], PRESETS[HUB[model].preset]
    config = CONFIGS[model.partition("-")[0]](
        known.heads * hub.head_size, known.heads, known.depth, hub.vocabulary
    )
    with torch.device("meta"):  # sizes without weights
        built = transformers.AutoModelForCausalLM.from_config(config)
    assert counted(model) == sum(one.numel() for one in built.parameters())
