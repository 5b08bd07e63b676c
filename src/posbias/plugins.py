"""Model families that other packages bring, by the entry points `posbias.families`.

    # pyproject.toml of another package
    [project.entry-points."posbias.families"]
    mymodel = "mypackage.for_posbias:FAMILY"

The name is the `model_type` of configurations, the object a `ModelFamily`, or what its `read` would be. Packages
are asked only for a name that posbias does not know itself, so that none can replace what is here; nothing of them
is imported before. Importing one may register its classes with transformers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from posbias.errors import PluginError

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


def names() -> dict[str, str]:
    """The families that packages bring → the package, none of them loaded."""
    return {entry.name: _package(entry) for entry in entry_points(group=GROUP)}


def family(name: str) -> ModelFamily | None:
    """What a package says of a family; None where none brings it.

    Raises `PluginError`, naming the package, where its object cannot be loaded, and where two packages bring one
    name.
    """
    entries = entry_points(group=GROUP, name=name)
    found = list({(_package(entry), entry.value): entry for entry in entries}.values())
    if not found:
        return None
    if len(found) > 1:
        raise PluginError(f"model_type: {name!r} is brought by {_listed(map(_package, found))}, one needed")
    [entry] = found
    package = _package(entry)
    try:
        made = entry.load()
    except Exception as error:  # whatever a package raises when it is imported
        raise failed(package, f"the entry point {name} = {entry.value} cannot be loaded", error) from error
    if not isinstance(made, ModelFamily):
        made = ModelFamily(made)
    return ModelFamily(made.read, made.capture, package)


def failed(package: str, what: str, error: Exception | None = None) -> PluginError:
    """The line about a package that does not do what it should."""
    told = "" if error is None else f" ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
    return PluginError(f"package {package}: {what}{told}; update or uninstall it")


def _package(entry: EntryPoint) -> str:
    return "of an unknown name" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def _listed(words: Iterable[str]) -> str:
    return " and ".join(sorted(words))
