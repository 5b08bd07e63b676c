"""The gradient influence against finite differences, in genuine float64."""

import numpy as np
import pytest
import torch

from posbias.measure.influence import influence, predict


def test_gradient_equals_finite_differences(tiny, ids, monkeypatch):
    # Llama's norm and softmax compute in torch.float32 by name; here that name means float64
    monkeypatch.setattr(torch, "float32", torch.float64)
    model = tiny.model.double()
    short = ids[:6]
    result = influence(predict(model, short), short)
    start = model.get_input_embeddings()(short[None])

    def probability(embeddings):
        with torch.no_grad():
            return float(model(inputs_embeds=embeddings).logits[0, -1].softmax(-1)[result.next_token])

    step, gradient = 1e-5, np.zeros((6, 32))
    for position in range(6):
        for channel in range(32):
            nudge = torch.zeros_like(start)
            nudge[0, position, channel] = step
            gradient[position, channel] = (probability(start + nudge) - probability(start - nudge)) / (
                2 * step
            )
    np.testing.assert_allclose(result.influence, np.linalg.norm(gradient, axis=1), rtol=1e-6)
    assert result.probability == pytest.approx(probability(start), rel=1e-12)


def test_influence_is_not_normalised_and_positive(tiny, ids):
    result = influence(predict(tiny.model, ids), ids)
    assert (result.influence > 0).all()
    assert result.influence.sum() != pytest.approx(1)
