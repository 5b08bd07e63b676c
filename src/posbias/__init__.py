"""posbias: predict, measure and compare position bias in transformers.

    import posbias

    architecture = posbias.load_architecture("config.json")
    profile = posbias.influence(architecture, tokens=4096)
    print(profile.summary.verdict, profile.summary.trough)

Names are loaded when first used; importing the package does no work. Measuring a model lives in
`posbias.measure`, which needs torch and transformers.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posbias.comparison import Comparison, compare, compare_all
    from posbias.errors import PosbiasError
    from posbias.estimate import Estimate
    from posbias.predictors import PREDICTORS, measured_influence, predictions
    from posbias.profile import Profile, Summary
    from posbias.report import write_report
    from posbias.store import load_measurement, load_profile, save_measurement
    from posbias.theory.architecture import Architecture, Layer
    from posbias.theory.configs import load_architecture
    from posbias.theory.content import ConstantDiagonal, NoContent
    from posbias.theory.distance import T5, DenseLogits, KerpleLog, KerplePower, RoPE, Tabulated
    from posbias.theory.masks import Causal, Full, Prefix, SlidingWindow
    from posbias.theory.mixing import (
        AbnarZuidema,
        AtInitialisation,
        AttentionOnly,
        Constant,
        PerLayer,
        PowerDecay,
    )
    from posbias.theory.positional import ALiBi, Decay, NeedsMeasurement, NoPE, alibi_slopes
    from posbias.theory.presets import preset
    from posbias.theory.rollout import influence, rollout, trajectory
    from posbias.theory.variation import vary

_HOME = {
    "Comparison": "comparison",
    "compare": "comparison",
    "compare_all": "comparison",
    "PosbiasError": "errors",
    "Estimate": "estimate",
    "PREDICTORS": "predictors",
    "measured_influence": "predictors",
    "predictions": "predictors",
    "Profile": "profile",
    "Summary": "profile",
    "write_report": "report",
    "load_measurement": "store",
    "load_profile": "store",
    "save_measurement": "store",
    "Architecture": "theory.architecture",
    "Layer": "theory.architecture",
    "load_architecture": "theory.configs",
    "ConstantDiagonal": "theory.content",
    "NoContent": "theory.content",
    "Causal": "theory.masks",
    "AbnarZuidema": "theory.mixing",
    "AtInitialisation": "theory.mixing",
    "AttentionOnly": "theory.mixing",
    "Constant": "theory.mixing",
    "PerLayer": "theory.mixing",
    "PowerDecay": "theory.mixing",
    "ALiBi": "theory.positional",
    "Decay": "theory.positional",
    "NeedsMeasurement": "theory.positional",
    "NoPE": "theory.positional",
    "alibi_slopes": "theory.positional",
    "RoPE": "theory.distance",
    "T5": "theory.distance",
    "KerpleLog": "theory.distance",
    "KerplePower": "theory.distance",
    "Tabulated": "theory.distance",
    "DenseLogits": "theory.distance",
    "SlidingWindow": "theory.masks",
    "Prefix": "theory.masks",
    "Full": "theory.masks",
    "preset": "theory.presets",
    "trajectory": "theory.rollout",
    "vary": "theory.variation",
    "influence": "theory.rollout",
    "rollout": "theory.rollout",
}

__version__ = "0.1.0"
__all__ = [
    "PREDICTORS",
    "T5",
    "ALiBi",
    "AbnarZuidema",
    "Architecture",
    "AtInitialisation",
    "AttentionOnly",
    "Causal",
    "Comparison",
    "Constant",
    "ConstantDiagonal",
    "Decay",
    "DenseLogits",
    "Estimate",
    "Full",
    "KerpleLog",
    "KerplePower",
    "Layer",
    "NeedsMeasurement",
    "NoContent",
    "NoPE",
    "PerLayer",
    "PosbiasError",
    "PowerDecay",
    "Prefix",
    "Profile",
    "RoPE",
    "SlidingWindow",
    "Summary",
    "Tabulated",
    "alibi_slopes",
    "compare",
    "compare_all",
    "influence",
    "load_architecture",
    "load_measurement",
    "load_profile",
    "measured_influence",
    "predictions",
    "preset",
    "rollout",
    "save_measurement",
    "trajectory",
    "vary",
    "write_report",
]


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
