"""The exact matrix of a gated delta rule against the recurrence of transformers, and what heuristics miss.

python tests/support/gated_delta.py    print the table of docs/evidence.md

Heuristic: Γ∘QKᵀ diag(β), which leaves the removal of keys out; "as alike": with γ_i·(1 − β_i/d_k) for γ_i in it,
which is what removal takes on average where keys point in all directions alike.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize
from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

from posbias.measurement.capture.recurrences import recurrence_matrix

TOKENS = 128
CASES = {
    "in all directions, γ .99": (32, 0.0, 0.01),
    "the same, γ .9": (32, 0.0, 0.1),
    "of 8 channels, γ .99": (8, 0.0, 0.01),
    "half in common, γ .99": (32, 1.0, 0.01),
}
"""Channels of a key, the length of what all keys have in common (a key's own part is of length 1), mean −ln γ."""


def drawn(channels: int, common: float, rate: float) -> tuple[Tensor, ...]:
    """Queries, keys (both as the rule has them), ln γ, β uniform, values; float64."""
    how = {"generator": torch.Generator().manual_seed(0), "dtype": torch.float64}
    shared = common * normalize(torch.randn(channels, **how), dim=0)
    query, key = (normalize(normalize(torch.randn(TOKENS, channels, **how)) + shared) for _ in range(2))
    gain, decay = torch.rand(TOKENS, **how), -2 * rate * torch.rand(TOKENS, **how)
    return query / channels**0.5, key, decay, gain, torch.randn(TOKENS, 16, **how)


def errors_and_reach(channels: int, common: float, rate: float) -> tuple[list[float], list[int]]:
    """Of exact, heuristic, as alike: errors of outputs relative to transformers', and within how many tokens the
    last row has half of its size."""
    query, key, decay, gain, value = drawn(channels, common, rate)
    given = (query * channels**0.5, key, value, decay, gain)
    own = torch_recurrent_gated_delta_rule(*(each[None, :, None] for each in given))[0][0, :, 0].double()
    matrices = [recurrence_matrix(query, key, decay, gain)]
    slower = decay + (1 - gain / channels).log()
    matrices += [recurrence_matrix(query, key, fading, gain, False) for fading in (decay, slower)]
    sums = [each[-1].abs().flip(0).cumsum(0) for each in matrices]
    reach = [int((sizes < sizes[-1] / 2).sum()) + 1 for sizes in sums]
    return [float((each @ value - own).norm() / own.norm()) for each in matrices], reach


if __name__ == "__main__":
    print(
        "| keys | error, exact | heuristic | as alike | half within | heuristic | as alike |\n|" + "---|" * 7
    )
    for name, case in CASES.items():
        (exact, *others), reach = errors_and_reach(*case)
        print(
            "|",
            " | ".join([name, f"{exact:.0e}", *(f"{each:.0%}" for each in others), *map(str, reach)]),
            "|",
        )
