"""Influence by gradient: how the last token's prediction depends on each token's embedding.

One forward pass with gradients to the input embeddings serves everything: whoever watches it (`Capture`)
sees the same pass whose outputs are differentiated here. What is differentiated is log P, in float64 from the
outputs on; the gradient of P is P times that, so that it does not underflow where the model computes in half
precision. Two economies serve long prompts, each proven on the model at hand before it is used (`economy`):
decoder layers are computed again in the backward pass rather than remembered, so that one layer's attention
is held instead of all; and the outputs of all tokens but the last, which only the loss needs, are made in
blocks without a graph, so that the backward pass skips them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from posbias.core.errors import ModelError, one_of, wrong
from posbias.measurement.capture.rerun import Economy, answering, leaf, owner_of, recomputed, rows_of
from posbias.measurement.models.families import embedding_table
from posbias.measurement.result import INFLUENCES, OF_STATES

BLOCK = 64
"""How many positions' outputs are made at a time for the loss."""
_HALF_SCALES = (2.0**12, 2.0**6, 1.0, 2.0**-6)
"""Factors on what is differentiated in float16: the first that leaves the gradient finite is used."""


@dataclass(frozen=True)
class Prediction:
    """What the model said: the input embeddings (a leaf with gradients) and its outputs before softmax.

    `outputs` are those of all positions, or of the last alone when `others(start, stop)` gives the outputs
    of positions start … stop − 1 without a graph.
    """

    embeddings: Float[Tensor, "1 position hidden"]
    outputs: Float[Tensor, "row vocabulary"]
    others: Callable[[int, int], Tensor] | None = None


def predict(model: Any, ids: Int[Tensor, "position"], economy: Economy | None = None) -> Prediction:
    """Run the model forward on one prompt, keeping what a backward pass to the embeddings needs.

    The embeddings are those that the model's embedding module returns: after a multiplier that is part of
    that module, before one that follows it, and before absolute positions are added. Works for models spread
    over several devices. Raises `ModelError` for a model that does not embed its tokens that way.
    """
    economy = economy or Economy()
    trunk = economy.trunk
    whole: list[Any] = []

    def shorten(module, given, output):
        whole.append(output)
        return rows_of(output, slice(-1, None))

    hook = trunk.register_forward_hook(shorten) if trunk is not None else nullcontext()
    with torch.enable_grad(), leaf(model) as leaves, recomputed(economy.recompute), hook:
        outputs = _outputs(model, ids)
    shapes = [[*one.shape] for one in leaves]
    if len(shapes) != 1 or shapes[0][:2] != [1, len(ids)]:
        what, got = f"tokens embedded once, as [1, {len(ids)}, width]", f"{shapes} by {type(model).__name__}"
        raise wrong("model", what, got=got, kind=ModelError)
    if trunk is None:
        return Prediction(leaves[0], outputs)

    def others(start: int, stop: int) -> Tensor:
        with torch.no_grad(), answering(trunk, rows_of(whole[0], slice(start, stop))):
            return _outputs(model, ids[start:stop])

    return Prediction(leaves[0], outputs, others)


def gradients(
    prediction: Prediction,
    ids: Int[Tensor, "position"],
    kinds: Sequence[str] = ("probability",),
    target: int | None = None,
    states: Mapping[str, Sequence[Tensor]] = {},
) -> dict[str, np.ndarray]:
    """Differentiate the last prediction by the input embeddings in each of the ways asked (see `INFLUENCES`).

    With y the most likely next token and z the outputs: `probability` is ‖∇_{e_j} P(y|x)‖₂ (Eq. 6 of
    Herasimchyk et al. 2026), `logit` ‖∇_{e_j} z_y‖₂, `log_probability` ‖∇_{e_j} ln P(y|x)‖₂, `target`
    ‖∇_{e_j} P(target|x)‖₂, `input` |⟨e_j, ∇_{e_j} P(y|x)⟩| (gradient × input; nothing but rounding where
    the model normalises its embeddings first, as Bloom does), `outputs` the mean over positions i of
    ‖∇_{e_j} P(y_i|x)‖₂, y_i the most likely token of the output at i; those of `states` [layer, position] are
    ‖∇ P(y|x)‖₂ by tensors of each layer: of `layers` by what it gave, of `attention` and `feed_forward` by what
    that branch adds to the stream, which is the gradient by the sum: in a plain stream that by the stream just
    after it. One backward pass serves probability, log-probability, input and states; logit and target take one
    more each, outputs one a position.

    Returns, in float64, an array over positions for each kind under its variable's name, not normalised, and
    the scalars `probability` = P(y|x), `next_token` = y, `loss` (mean next-token cross-entropy of the prompt,
    nats, NaN for one token), with `target` also `target_probability` and `target_token`. The graph is used
    up: call once. Raises `InvalidValueError` for an unknown kind, or a target that is missing or no token.
    """
    last = prediction.outputs[-1].cpu().double()
    _check(kinds, target, last.shape[0])
    with torch.enable_grad():
        log_probabilities = last.log_softmax(dim=-1)
    chosen = int(last.detach().argmax())
    means = {INFLUENCES["outputs"]: _of_outputs(prediction)} if "outputs" in kinds else {}
    kinds = [kind for kind in kinds if kind not in ("outputs", *OF_STATES)]
    wanted = {_pass(kind, target == chosen) for kind in kinds}
    scalars = {"chosen": log_probabilities[chosen], "logit": last[chosen]}
    if target is not None:
        scalars["target"] = log_probabilities[target]
    order = [name for name in scalars if name in wanted]
    slopes, probability = {}, float(scalars["chosen"].detach().exp())
    for name in order:
        held = states if name == "chosen" else {}
        by = (prediction.embeddings, *chain(*held.values()))
        slopes[name], *rest = _differentiate(scalars[name], by, keep=name != order[-1])
        norms = iter(torch.linalg.vector_norm(one, dim=-1).numpy() * probability for one in rest)
        means |= {INFLUENCES[kind]: np.stack([*islice(norms, len(one))]) for kind, one in held.items()}
    row = {"probability": np.array(probability), "next_token": np.array(chosen)}
    row["loss"] = np.array(_loss(prediction, ids))
    if "target" in kinds:
        said = float(scalars["target"].detach().exp())
        row |= {"target_probability": np.array(said), "target_token": np.array(target)}
    for kind in kinds:
        slope = slopes[_pass(kind, target == chosen)]
        if kind == "input":
            norms = (slope * prediction.embeddings.detach()[0].cpu().double()).sum(dim=-1).abs()
        else:
            norms = torch.linalg.vector_norm(slope, dim=-1)
        factor = {"probability": probability, "input": probability}.get(kind, 1.0)
        row[INFLUENCES[kind]] = norms.numpy() * (
            float(row["target_probability"]) if kind == "target" else factor
        )
    return row | means


def economy(model: Any, layers: Sequence[Any], ids: Int[Tensor, "position"], again: bool = True) -> Economy:
    """Find out on one short prompt which economies leave outputs and gradients as they are.

    `layers` are the model's decoder layers; without `again` they are not to be computed again. An economy that
    fails or changes a result by more than rounding is left out, with a word about it in `notes`.
    """
    plain = predict(model, ids)
    reference = plain.outputs[-1].detach(), gradients(plain, ids)
    found, notes = Economy(), []
    tries = {"its outputs are not made in blocks": Economy(trunk=owner_of(model, layers))}
    if again:
        tries["its layers are not recomputed"] = Economy(recompute=tuple(layers))
    for word, attempt in tries.items():
        if problem := _difference(model, ids, attempt, reference):
            notes.append(f"{word}: {problem}")
        else:
            found = replace(
                found, recompute=attempt.recompute or found.recompute, trunk=attempt.trunk or found.trunk
            )
    return replace(found, notes=tuple(notes))


def _check(kinds: Sequence[str], target: int | None, vocabulary: int) -> None:
    for kind in kinds:
        one_of("kinds", kind, INFLUENCES)
    if "target" in kinds and (target is None or not 0 <= target < vocabulary):
        raise wrong("target", f"a token from 0 to {vocabulary - 1} for the kind 'target'", target)


def _of_outputs(prediction: Prediction) -> Float[np.ndarray, "position"]:
    """The mean over positions of the gradient influence on the prediction there."""
    tokens = prediction.embeddings.shape[1]
    if prediction.outputs.shape[0] != tokens:
        raise wrong("kinds", f"all {tokens} outputs for 'outputs'", prediction.outputs.shape[0])
    total = np.zeros(tokens)
    for output in prediction.outputs:
        with torch.enable_grad():
            said = output.cpu().double().log_softmax(dim=-1).max()
        (slope,) = _differentiate(said, [prediction.embeddings], keep=True)
        total += float(said.detach().exp()) * torch.linalg.vector_norm(slope, dim=-1).numpy()
    return total / tokens


def _pass(kind: str, target_is_chosen: bool) -> str:
    """The backward pass that a kind is made from."""
    if kind == "logit":
        return "logit"
    return "target" if kind == "target" and not target_is_chosen else "chosen"


def _differentiate(
    scalar: Tensor, by: Sequence[Tensor], keep: bool
) -> list[Float[Tensor, "position hidden"]]:
    """The gradients in float64; in float16 those of a multiple, so that small entries do not vanish."""
    scales = [*_HALF_SCALES] if by[0].dtype == torch.float16 else [1.0]
    while True:
        scale = scales.pop(0)
        found = torch.autograd.grad(scalar * scale, by, retain_graph=keep or bool(scales))
        if not scales or all(bool(torch.isfinite(one).all()) for one in found):
            return [one.reshape(by[0].shape[1], -1).cpu().double() / scale for one in found]


def _loss(prediction: Prediction, ids: Int[Tensor, "position"]) -> float:
    """Mean cross-entropy of every token given those before it, in nats."""
    pairs = ids.shape[0] - 1
    if pairs < 1:
        return float("nan")
    given = prediction.outputs.detach()
    others = prediction.others or (lambda start, stop: given[start:stop])
    total = 0.0
    for start in range(0, pairs, BLOCK):
        stop = min(start + BLOCK, pairs)
        rows = others(start, stop).float()
        said = rows.gather(1, ids[start + 1 : stop + 1, None].to(rows.device))[:, 0]
        total += float((rows.logsumexp(dim=1).cpu().double() - said.cpu().double()).sum())
    return total / pairs


def _outputs(model: Any, ids: Int[Tensor, "position"]) -> Float[Tensor, "row vocabulary"]:
    weight = embedding_table(model)
    # weights that are elsewhere until they are used ("meta") come with hooks that move what they are given
    given = ids[None] if weight.device.type == "meta" else ids[None].to(weight.device)
    outputs = getattr(model(input_ids=given, use_cache=False), "logits", None)
    if outputs is None or outputs.dim() != 3:
        got = f"{type(model).__name__}, which has none"
        raise wrong("model", "a head that predicts tokens", got=got, kind=ModelError)
    return outputs[0]


def _difference(
    model: Any,
    ids: Int[Tensor, "position"],
    attempt: Economy,
    reference: tuple[Tensor, dict[str, np.ndarray]],
) -> str:
    """What is wrong with an economy, or nothing."""
    outputs, row = reference
    # rounding of the model's precision, as the head sees one row instead of all; layers multiply it in a gradient
    rounding = 16 * torch.finfo(outputs.dtype).eps
    tolerances = {
        "outputs": max(1e-4, rounding),
        "influence": max(1e-2, rounding),
        "loss": max(1e-4, rounding),
    }
    try:
        prediction = predict(model, ids, attempt)
        if attempt.trunk is not None and prediction.outputs.shape[0] != 1:
            return "its head does not read the output of the module that holds its layers"
        again = gradients(prediction, ids)
    except Exception as error:  # what a model that does not allow it raises may be anything
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return f"{type(error).__name__}: {first}"
    off = {
        "outputs": float((prediction.outputs[-1].detach() - outputs).abs().max() / outputs.abs().max()),
        "influence": float(abs(again["influence"] - row["influence"]).max() / row["influence"].max()),
        "loss": float(abs(again["loss"] - row["loss"]) / max(1.0, float(row["loss"]))),
    }
    wrong = [f"{name} by {value:.1e}" for name, value in off.items() if not value <= tolerances[name]]
    return f"that would change its {' and '.join(wrong)}" if wrong else ""
