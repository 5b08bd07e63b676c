"""Attention of padded and packed batches is refused, and what the refusal advises gives the unpadded run."""

import re

import numpy as np
import pytest
import torch
import transformers
import zoo

import posbias
from posbias import Attention
from posbias.core.errors import InvalidValueError

TOKENS, PADS = 9, 3
IDS = torch.arange(3, 3 + 2 * TOKENS).view(2, TOKENS)
ENCODERS = ["bert", "modernbert"]
FAMILIES = ["llama", "mistral", "gpt2", "gpt_neox", "gemma2", "bloom", "gpt_oss", *ENCODERS]
SIDES = {"left": (PADS, TOKENS), "right": (0, TOKENS - PADS)}
"""By side of the padding, where the text begins and ends."""


def attentions(family, ids, **options):
    head = transformers.AutoModelForMaskedLM if family in ENCODERS else transformers.AutoModelForCausalLM
    options |= {} if family in ENCODERS else {"use_cache": False}
    with torch.no_grad():
        return zoo.tiny(family, head, "eager")(ids, output_attentions=True, **options).attentions


def padding(side):
    position = torch.arange(TOKENS)
    return ((position >= SIDES[side][0]) & (position < SIDES[side][1])).long()


def advice(arrays, **options):
    """What the refusal says to pass: row, and from which token to which."""
    with pytest.raises(InvalidValueError, match="one text without padding in each row") as caught:
        Attention.from_arrays(arrays, **options)
    return tuple(
        map(int, re.search(r"row (\d+) .* layer\[\.\.\., (\d+):(\d+), \2:\3\]", str(caught.value)).groups())
    )


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_padded_text_taken_out_as_advised_is_the_unpadded_run(family, side):
    encoder, mask = family in ENCODERS, torch.stack([torch.ones(TOKENS).long(), padding(side)])
    options = {"mask": posbias.Full()} if encoder else {"learned_sinks": family == "gpt_oss"}
    # bloom's biases go by the mask, other positions by what is given
    given = {} if encoder or family == "bloom" else {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    arrays = attentions(family, IDS, attention_mask=mask, **given)
    row, first, last = advice(arrays, **options)
    assert (row, first, last) == (1, *SIDES[side])
    alone = Attention.from_arrays(attentions(family, IDS[row:, first:last]), **options)
    if side == "right" or not encoder:  # an encoder's positions go on from the padding
        own = [layer[row, :, first:last, first:last] for layer in arrays]
        mass = Attention.from_arrays(own, **options).rollout(0.5).mass
        np.testing.assert_allclose(mass, alone.rollout(0.5).mass, rtol=2e-4)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("held", [torch.eye(TOKENS), torch.tensor(0.0), torch.tensor(np.nan)])
def test_rows_of_padding_may_hold_anything(side, held):
    mask = padding(side)
    arrays = attentions("llama", IDS[:1], attention_mask=mask[None])
    assert advice([torch.where(mask[:, None] > 0, layer, held) for layer in arrays]) == (0, *SIDES[side])


def test_packed_texts_are_refused_unless_a_mask_parts_them():
    arrays = attentions("llama", IDS[:1], position_ids=torch.tensor([[0, 1, 0, 1, 2, 3, 0, 1, 0]]))
    assert advice(arrays) == (0, 6, 8)
    alone = Attention.from_arrays(attentions("llama", IDS[:1, 2:6])).rollout(0.5).mass
    documents = np.repeat([0, 1, 2, 3], [2, 4, 2, 1])
    parted = posbias.CustomMask(np.equal.outer(documents, documents) & np.tri(TOKENS, dtype=bool))
    meant = Attention.from_arrays(arrays, mask=parted).rollout(0.5, query=5).mass
    np.testing.assert_allclose(meant, np.pad(alone, (2, 3)), rtol=1e-4)
