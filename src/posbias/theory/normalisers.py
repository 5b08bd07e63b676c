"""How the logits of a query become its row of attention.

Softmax gives every key that the mask admits a part: no edge of the mask is ever lost (Wu et al. 2025, §4.1). ReLU
gives nothing to keys whose logit is not positive, and so takes edges out; sigmoid weighs each key by itself. A
row may then sum to less than one, and what is missing reaches no token, as with a learned sink. A softmax with
such a sink next to the keys is `Layer.sinks`; the sink of logit 0 is "softmax off by one" (Miller 2023). Layers
that are no attention (linear attention, state spaces, short convolutions) divide by nothing.
"""

import math
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field, FiniteFloat

from posbias.core.errors import wrong
from posbias.core.spec import members, tag, value

Logits = Float[np.ndarray, "*heads key"]
"""Logits of keys, −∞ where the mask admits none."""


@value
class Softmax:
    """A_ij = exp(s_ij)/Σ_k exp(s_ik): rows sum to one, or to less with a sink (Wu et al. 2025, §3.1)."""

    kind: Literal["softmax"] = tag(default="softmax")

    def weights_of(self, logits: Logits, sink: float | Float[np.ndarray, "*heads 1"] = -np.inf) -> Logits:
        """Weights of keys; `sink` is the logit of a sink next to them. A row of −∞ alone is not allowed."""
        largest = np.maximum(logits.max(axis=-1, keepdims=True), sink)
        weights = np.exp(logits - largest)
        return weights / (weights.sum(axis=-1, keepdims=True) + np.exp(sink - largest))


@value
class ReLU:
    """A_ij = max(s_ij, 0)/Σ_k max(s_ik, 0); a row without a positive logit is empty, and its query draws nothing.

    The kernel attention of Gu et al. 2025 (their sim/Z) with max(s, 0) as the similarity. Wortsman et al. 2023
    divide by the number of tokens instead: their rows have any sum, and are no shares that a rollout could
    compose. Both keep the same edges, those of positive logits.
    """

    kind: Literal["relu"] = tag(default="relu")

    def weights_of(self, logits: Logits) -> Logits:
        """Weights of keys; rows sum to one or are zero."""
        kept = np.maximum(logits, 0.0)
        largest = kept.max(axis=-1, keepdims=True)
        kept = np.divide(kept, largest, out=np.zeros_like(kept), where=largest > 0)
        total = kept.sum(axis=-1, keepdims=True)
        return np.divide(kept, total, out=kept, where=total > 0)


@value
class Sigmoid:
    """A_ij = 1/(1 + exp(−s_ij − b)), with `bias` b = −ln n for a text of n tokens (Ramapuram et al. 2024).

    Rows have any sum: (i + 1)/(n + 1) under the causal mask where all logits are 0, more than one where many are
    large. None stands for −ln n.
    """

    bias: FiniteFloat | None = None
    kind: Literal["sigmoid"] = tag(default="sigmoid")

    def at(self, tokens: int) -> "Sigmoid":
        """The same with the bias of a text of `tokens` tokens, where none was given."""
        return self if self.bias is not None else Sigmoid(-math.log(tokens))

    def weights_of(self, logits: Logits) -> Logits:
        """Weights of keys. Raises `InvalidValueError` without a bias: `at` gives that of a length."""
        if self.bias is None:
            raise wrong("bias", "a number, as `at` gives it for a length of text", got="None")
        from scipy.special import expit  # which takes as long to load as the rest of theory

        return expit(logits + self.bias)


@value
class Unnormalised:
    """A_ij = exp(s_ij), divided by nothing: the weights of layers that pass on without a softmax.

    - Linear attention, a gated delta rule, a state-space layer, content averaged out: A_ij = g·γ^(i − j), from
      `ALiBi` with the slopes −ln γ, a rate for each head, and the constant content logit ln g (Sun et al. 2023;
      Dao & Gu 2024). With g = 1 − γ a row sums to 1 − γ^(i + 1). In a gated delta rule each later key of d_k
      channels also removes part of what was written: γ(1 − β/d_k) for γ, where keys point in all directions alike.
    - A short convolution of width k: `SlidingWindow(k)` and `Tabulated` with ln w_d for d = 0 … k − 1. The first
      k − 1 tokens have fewer before them, and their rows lack it.

    Signs are lost: a share is a size. A profile needs rows that sum to one at most.

        rates, gains = (-np.log(0.9), -np.log(0.99)), (np.log(0.1), np.log(0.01))
        Layer(2, positional=ALiBi(rates), content=ConstantDiagonal((0.0,), gains), normaliser=Unnormalised())
    """

    kind: Literal["unnormalised"] = tag(default="unnormalised")

    def weights_of(self, logits: Logits) -> Logits:
        """Weights of keys: the exponentials of their logits, infinite where a double cannot hold them."""
        with np.errstate(over="ignore"):
            return np.exp(logits)


Normaliser = Annotated[Softmax | ReLU | Sigmoid | Unnormalised, Field(discriminator="kind")]
"""How rows of attention are made."""

NORMALISERS = members(Normaliser)
"""Every class of the union, for tests, menus and tables."""
