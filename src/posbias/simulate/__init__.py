"""LayerNorm-induced recency by Monte Carlo (Kim et al. 2026): two engines, one law.

    from posbias.simulate import RecencyModel, simulate_recency

    result = simulate_recency(RecencyModel(dimension=16, anisotropy=0.5), 1_000_000)
    print(result.recency_probability[1])          # layer 2

`gram` is the fast engine, `token_space` the plain reference; both fill the same `Tally`.
"""

from posbias.simulate.model import NORMS, RecencyModel
from posbias.simulate.result import Averages, Recency, RecencyResult
from posbias.simulate.run import InterruptedSimulation, simulate_recency
from posbias.simulate.variants import VARIANTS, Variant, VariantResult, simulate_variant

__all__ = [
    "NORMS",
    "VARIANTS",
    "Averages",
    "InterruptedSimulation",
    "Recency",
    "RecencyModel",
    "RecencyResult",
    "Variant",
    "VariantResult",
    "simulate_recency",
    "simulate_variant",
]
