"""Networks of random weights: as wide as asked, the same with and without positions; the study of them."""

import numpy as np
import pytest
import torch

from posbias_papers.extensions.untrained import UntrainedCell, untrained


@pytest.mark.parametrize("family", ["gpt2", "qwen2"])
def test_weights_are_the_same_with_and_without_positions(family):
    given, without = (untrained(family, 8, 32, 5, positions=positions) for positions in (True, False))
    for (name, one), (_, other) in zip(given.named_parameters(), without.named_parameters(), strict=True):
        assert torch.equal(one, other) == ("wpe" not in name), name
    if family == "gpt2":
        assert not without.transformer.wpe.weight.any()
        assert given.transformer.wpe.weight.std().item() == pytest.approx(0.02, rel=0.1)
    else:
        cosine, sine = without.model.rotary_emb(torch.zeros(1), torch.arange(32)[None])
        assert (cosine == 1).all()
        assert (sine == 0).all()
        assert given.model.rotary_emb(torch.zeros(1), torch.arange(32)[None])[1].any()


def test_matrices_are_wider_by_the_root_of_the_narrowing_and_embeddings_are_not():
    model = untrained("qwen2", 4, 32, 0)
    assert model.config.hidden_size == 224
    assert model.config.num_hidden_layers == 24
    assert model.get_input_embeddings().weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert model.model.layers[3].self_attn.q_proj.weight.std().item() == pytest.approx(0.04, rel=0.02)


def test_the_same_seed_gives_the_same_network_and_leaves_torch_alone():
    before = torch.random.get_rng_state()
    one, other, third = (untrained("gpt2", 8, 16, seed).lm_head.weight for seed in (1, 1, 2))
    assert torch.equal(one, other)
    assert not torch.equal(one, third)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.slow
def test_an_untrained_network_ranks_positions_as_even_attention_does():
    found = UntrainedCell("gpt2", True).compute(seeds=range(2, 4))
    assert np.shape(found["influence"]) == (2, 128)
    assert np.sum(found["influence"], axis=1) == pytest.approx(1.0)
    assert min(found["spearman"]) > 0.85
    assert max(found["fitted"]) < 0.1 < min(found["half"])
    assert min(found["first"]) > 2 * max(found["middle"])
