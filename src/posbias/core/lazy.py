"""Packages whose names are loaded when first used, from their stub, and packages that may be absent."""

import importlib.util
import traceback
from collections.abc import Callable
from typing import Any

import lazy_loader

from posbias.core.errors import MissingPackageError

_OPTIONAL = {"torch", "transformers", "safetensors", "gguf", "accelerate", "xarray", "netCDF4"}
_EXTRAS = {
    **dict.fromkeys((*sorted(_OPTIONAL), "pandas", "tokenizers", "huggingface_hub"), "measure"),
    **dict.fromkeys(("matplotlib", "jinja2", "markupsafe", "markdown_it"), "report"),
    "datasets": "texts",
    **dict.fromkeys(("ray", "grpc"), "cluster"),
    "langchain_core": "langchain",
    "llama_index": "llama-index",
    "haystack": "haystack",
}
"""Packages that may be absent → the extra of posbias that brings them."""


def attach(
    package: str, file: str, work: str, *, extra: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package: the names of the `.pyi` next to `file`.

    A name whose module needs an optional package that is absent raises `MissingPackageError`, which says what
    `work` needs and the `extra` of posbias that brings it.
    """
    find, names, public = lazy_loader.attach_stub(package, file)

    def find_or_explain(name: str) -> Any:
        try:
            return find(name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in _OPTIONAL:
                raise
            raise _missing(missing, work, extra) from error

    return find_or_explain, names, public


def need(*packages: str, work: str, extra: str = "") -> None:
    """Raise `MissingPackageError` for the first of `packages`, by import name, that is not installed.

    It names `extra`, or without one the extra that brings the package.
    """
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise _missing(package, work, extra or _EXTRAS[package])


def missing(error: ModuleNotFoundError) -> MissingPackageError | None:
    """What to say of a package that was looked for in vain; None for one that no extra brings."""
    package = (error.name or "").partition(".")[0]
    if package not in _EXTRAS:
        return None
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    if any(module.startswith("posbias.training") for module in modules):
        return _missing(package, "training", "train")
    return _missing(package, "this", _EXTRAS[package])


def _missing(package: str, work: str, extra: str) -> MissingPackageError:
    return MissingPackageError(
        f"{package}: not installed, {work} needs it; run: pip install 'posbias[{extra}]'"
    )
