"""Training the controlled retrieval experiments of Wu et al. 2025: task, network, ensembles, measures, spec.

    from posbias.training import Experiment, Network, evaluate, train

    trained = train(Experiment(network=Network(depth=2), iterations=2500))
    print(evaluate(trained).gaps["first-last"].all)

Nothing heavy happens at import: torch and xarray are loaded when a name of the stub is first used, and
`MissingPackageError` says what to install when they are absent. `docs/train.md` explains the numbers.
"""

from posbias.core.packages import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__, "training", extra="train")
