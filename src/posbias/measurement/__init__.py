"""Measuring position bias in real language models: forward passes in, labelled arrays out.

Nothing heavy happens at import: torch, transformers and xarray are loaded when a name below is first used,
and `MissingPackageError` says what to install when they are absent.

The way through: `load_model` finds and loads a model, `measure` runs it over prompts cut from a text and
returns an `xarray.Dataset` whose contents `docs/measure.md` fixes.
"""

from posbias.core.packages import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__, "measuring", extra="measure")
