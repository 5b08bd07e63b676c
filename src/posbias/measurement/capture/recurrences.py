"""Layers without a softmax: what they pass between positions, as the matrix that it is.

A recurrence or a convolution is linear in its values, o_i = Σ_j M_ij v_j, and M follows from all else it is given:

- gated delta rule (Yang et al. 2025), S_i = γ_i(I − β_i k_i k_iᵀ)S_{i−1} + β_i k_i v_iᵀ and o_i = S_iᵀq_i:
  M = tril(Γ∘QKᵀ)(I + diag(β) strictlower(Γ∘KKᵀ))⁻¹ diag(β), Γ_ij = γ_{j+1} ⋯ γ_i, k of length 1, q of 1/√d_k.
  The inverse is the removal of what a key had written before; without it M is Γ∘QKᵀ diag(β), and reach too long
- Mamba-2 (Dao & Gu 2024): M = tril(Γ∘CBᵀ) diag(Δ) + D on the diagonal, γ_i = exp(Δ_i A)
- a short convolution: w_{i−j} in each channel, which is a head

Values are what the recurrence itself is given: convolutions, gates and norms before and after it are not in M.
Models of transformers call one function for it, a name in the file of their layer, which is wrapped while they are
watched.
"""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from posbias.measurement.capture.scores import Block, Scores, all_finite

Matrix = Float[Tensor, "query key"]
States = Float[Tensor, "position channel"]
Steps = Float[Tensor, "position"]


@dataclass(frozen=True)
class Effective(Scores):
    """The matrices of a layer without a softmax: `rows` are theirs, of any sign and sum, in float64 on the CPU.

    `values` are what they multiply, `mixed` is what the model made of that, `matrix` gives that of a head, `mean`
    is the mean over heads of |M| where it is had without them. There are no logits: those of seen keys are 0.
    """

    _sized = "values"

    kind: str
    values: Float[Tensor, "head position channel"]
    mixed: Float[Tensor, "position joined"]
    matrix: Callable[[int], Matrix]
    mean: Matrix | None = None

    def sizes(self) -> Matrix:
        """The mean over heads of |M|: signs would cancel between heads, and rows keep their sums."""
        each = (self.matrix(head).abs() for head in range(self.heads))
        return sum(each, torch.tensor(0.0)) / self.heads if self.mean is None else self.mean

    def rows(self, start: int, stop: int) -> tuple[Block, Block]:
        matrices = [self.matrix(head)[start:stop, :stop] for head in range(self.heads)]
        return self.logits_of(start, stop), torch.stack(matrices)

    def logits_of(self, start: int, stop: int) -> Block:
        later = torch.full((stop - start, stop), -torch.inf).triu(start + 1)
        return later.expand(self.heads, -1, -1)

    def finite(self) -> bool:
        return all_finite(self.values) and all_finite(self.mixed)

    def diagonal(self) -> Float[Tensor, "head query"]:
        return torch.zeros(self.heads, self.tokens)


def recurrence_matrix(query: States, key: States, decay: Steps, gain: Steps, removes: bool = True) -> Matrix:
    """The matrix of one head of a gated delta rule; not `removes`: of a state that only forgets, as Mamba-2's.

    `decay` is ln γ of each step, `gain` β or Δ.
    """
    gone, later = decay.cumsum(0), torch.ones(len(decay), len(decay), dtype=torch.bool).triu(1)
    fading = (gone[:, None] - gone).masked_fill(later, -torch.inf).exp()
    passed = fading * (query @ key.T)
    if removes:
        written = gain[:, None] * fading * (key @ key.T)  # below the diagonal: the rest is not looked at
        passed = torch.linalg.solve_triangular(written, passed, upper=False, left=False, unitriangular=True)
    return passed * gain


def _by_head(states: Tensor) -> Tensor:
    """[1, position, head, …] → [head, position, …] in float64 on the CPU."""
    return states.detach()[0].transpose(0, 1).cpu().double()


def _gated_delta(given: Mapping[str, Any], result: Tensor) -> Effective:
    names = ("query", "key", "value", "g", "beta")
    query, key, value, decay, gain = (_by_head(given[name]) for name in names)
    query, key = (each * (each.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for each in (query, key))
    query, each = query / query.shape[-1] ** 0.5, len(value) // len(key)

    def matrix(head: int) -> Matrix:
        return recurrence_matrix(query[head // each], key[head // each], decay[head], gain[head])

    return Effective("gated delta rule", value, result[0].flatten(1), matrix)


def _mamba2(given: Mapping[str, Any], result: Tensor) -> Effective:
    # steps are rounded as the model rounds them, since their sum is exponentiated
    steps = torch.nn.functional.softplus(given["dt"] + given["dt_bias"].to(given["dt"]))
    states = given["hidden_states"], given["B"], given["C"], steps.clamp(*given["dt_limit"])
    value, key, query, step = map(_by_head, states)
    rate, own = (given[name].detach().cpu().double() for name in ("A", "D"))
    each = len(value) // len(key)

    def matrix(head: int) -> Matrix:
        shared, decay = head // each, rate[head] * step[head]
        passed = recurrence_matrix(query[shared], key[shared], decay, step[head], removes=False)
        return passed + own[head] * torch.eye(len(decay))

    return Effective("Mamba-2", value, result[0].flatten(1), matrix)


def _convolution(given: Mapping[str, Any], result: Tensor) -> Effective:
    values, weights, bias = given["hidden_states"].detach()[0], given["weight"].detach(), given.get("bias")
    tokens = values.shape[1]

    def matrix(of_channel: Float[Tensor, "width"]) -> Matrix:
        found = torch.zeros(tokens, tokens, dtype=torch.float64)
        for distance, weight in enumerate(of_channel.flip(0).tolist()[:tokens]):
            found.diagonal(-distance).fill_(weight)
        return found

    mixed = result[0].T if bias is None else result[0].T - bias.detach()
    of_channel, mean = (lambda head: matrix(weights[head])), matrix(weights.abs().double().mean(dim=0))
    return Effective("short convolution", values[..., None], mixed, of_channel, mean)


FUNCTIONS: dict[str, Callable[[Mapping[str, Any], Tensor], Effective]] = {
    "torch_chunk_gated_delta_rule": _gated_delta,
    "mamba2_chunk_scan": _mamba2,
    "causal_conv1d_fn": _convolution,
}
"""The functions of transformers that are recurrences, and what makes their matrices of arguments and result."""


def intercept(stack: ExitStack, layers: Sequence[Any], name: str, see: Callable[..., Any]) -> None:
    """Hand calls of the function `name` in the files of `layers` to `see(call, matrices)` until `stack` is closed.

    `call()` runs it as it was called, `matrices(result)` says what it passed on.
    """
    files = {sys.modules[type(part).__module__] for layer in layers for part in layer.modules()}

    def called(own: Callable, *args: Any, **named: Any) -> Any:
        given = inspect.signature(own).bind(*args, **named).arguments
        return see(partial(own, *args, **named), lambda result: FUNCTIONS[name](given, result.detach()))

    for file in files:
        if own := vars(file).get(name):
            stack.callback(setattr, file, name, own)
            setattr(file, name, partial(called, own))
