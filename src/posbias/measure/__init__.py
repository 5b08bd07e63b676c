"""Measuring position bias in real language models: forward passes in, labelled arrays out.

Nothing heavy happens at import: torch, transformers and xarray are loaded when a name below is first used,
and `MissingPackageError` says what to install when they are absent.

The way through: `load_model` finds and loads a model, `measure` runs it over prompts cut from a text and
returns an `xarray.Dataset` whose contents `docs/measurement.md` fixes.
"""

import importlib
from typing import TYPE_CHECKING

from posbias.errors import MissingPackageError

if TYPE_CHECKING:
    from posbias.measure.cache import ModelRecord, available_models, cache_folder
    from posbias.measure.checkpoint import discard_checkpoint
    from posbias.measure.fetching import fetch
    from posbias.measure.job import Request
    from posbias.measure.loading import LoadedModel, load_model
    from posbias.measure.memory import estimate_cost
    from posbias.measure.proof import prove_family, selfcheck
    from posbias.measure.run import for_length, job_fingerprint, measure, prepared
    from posbias.measure.sharing import group
    from posbias.measure.text import check_counts, prompts_from, read_text

__all__ = [
    "LoadedModel",
    "ModelRecord",
    "Request",
    "available_models",
    "cache_folder",
    "check_counts",
    "discard_checkpoint",
    "estimate_cost",
    "fetch",
    "for_length",
    "group",
    "job_fingerprint",
    "load_model",
    "measure",
    "prepared",
    "prompts_from",
    "prove_family",
    "read_text",
    "selfcheck",
]

_HOME = {
    "group": "sharing",
    "Request": "job",
    "for_length": "run",
    "estimate_cost": "memory",
    "LoadedModel": "loading",
    "ModelRecord": "cache",
    "available_models": "cache",
    "cache_folder": "cache",
    "check_counts": "text",
    "discard_checkpoint": "checkpoint",
    "fetch": "fetching",
    "job_fingerprint": "run",
    "load_model": "loading",
    "measure": "run",
    "prepared": "run",
    "prompts_from": "text",
    "prove_family": "proof",
    "read_text": "text",
    "selfcheck": "proof",
}
_OPTIONAL = {"torch", "transformers", "safetensors", "gguf", "accelerate", "xarray", "h5netcdf", "h5py"}


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _OPTIONAL:
            raise
        raise MissingPackageError(
            f"{package}: not installed, measuring needs it; run: pip install 'posbias[measure]'"
        ) from error


def __dir__() -> list[str]:
    return sorted(__all__)
