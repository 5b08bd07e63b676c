"""Packages that may be absent, names that are loaded when first used, and what other packages bring.

    # pyproject.toml of another package
    [project.entry-points."posbias.families"]
    mymodel = "mypackage.for_posbias:FAMILY"

The name is the `model_type` of configurations, the object a `ModelFamily`, or what its `read` would be. Packages
are asked only for a name that posbias does not know itself, so that none can replace what is here; nothing of them
is imported before. Importing one may register its classes with transformers.
"""

import importlib.util
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import lazy_loader

from posbias.core.errors import MissingPackageError, PluginError, wrong

_MEASURE = "accelerate gguf huggingface_hub netCDF4 pandas safetensors tokenizers torch transformers xarray"
_EXTRAS = {
    **dict.fromkeys(_MEASURE.split(), "measure"),
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
            absent = (error.name or "").partition(".")[0]
            if absent not in _EXTRAS:
                raise
            raise _missing(absent, work, extra) from error

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


GROUP = "posbias.families"


@dataclass(frozen=True)
class ModelFamily:
    """What a package says of a family.

    `read` makes an architecture of a configuration: a row (`posbias.theory.huggingface_families.Family`), or a
    function of the configuration's keys that returns an `Architecture`. `capture`, if given, is what no look at a
    model can tell a measurement (`posbias.measurement.models.families.Family`); every measurement of such a model
    has to pass the self-check, with it or without. `package` is set when it is found.
    """

    read: Any
    capture: Any = None
    package: str = ""


def names(group: str = GROUP) -> dict[str, str]:
    """The names that packages bring to a group → the package, none of them loaded."""
    return {entry.name: _package(entry) for entry in entry_points(group=group)}


def load(group: str, name: str) -> Any:
    """What a package brings to a group under a name.

    Raises `PluginError`, naming the package, where its object cannot be loaded, and where two packages bring one
    name.
    """
    entry = _entry(group, name)
    try:
        return entry.load()
    except Exception as error:  # whatever a package raises when it is imported
        where = f"the entry point {name} = {entry.value} cannot be loaded"
        raise failed(_package(entry), where, error) from error


def family(name: str) -> ModelFamily | None:
    """What a package says of a family; None where none brings it. Raises as `load`."""
    if name not in names():
        return None
    made = load(GROUP, name)
    made = made if isinstance(made, ModelFamily) else ModelFamily(made)
    return replace(made, package=_package(_entry(GROUP, name)))


def bundled() -> dict[str, Path]:
    """The models that packages bring: name → its folder (entry points `posbias.models`, folders of models)."""
    folders = [load("posbias.models", name) for name in names("posbias.models")]
    return {
        config.parent.name: config.parent for folder in folders for config in folder.glob("*/config.json")
    }


def _entry(group: str, name: str) -> EntryPoint:
    """The one entry point of a name."""
    entries = entry_points(group=group, name=name)
    found = list({(_package(entry), entry.value): entry for entry in entries}.values())
    if len(found) != 1:
        what = "model_type" if group == GROUP else group
        got = " and ".join(sorted(map(_package, found)))
        raise wrong(what, f"one package that brings {name!r}", got=got, kind=PluginError)
    return found[0]


def failed(package: str, what: str, error: Exception | None = None) -> PluginError:
    """The line about a package that does not do what it should."""
    why = "" if error is None else f" ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
    return PluginError(f"package {package}: {what}{why}; update or uninstall it")


def _package(entry: EntryPoint) -> str:
    return "of an unknown name" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
