"""LayerNorm-induced recency by Monte Carlo (Kim et al. 2026): two engines, one law.

    from posbias.simulation import RecencyModel, simulate_recency

    result = simulate_recency(RecencyModel(dimension=16, anisotropy=0.5), 1_000_000)
    print(result.recency_probability[1])          # layer 2

`gram` is the fast engine, `token_space` the plain reference; both fill the same `Tally`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
