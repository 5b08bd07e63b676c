"""What other packages bring, by entry points: model families, models, verbs of studies, commands.

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
from pathlib import Path
from typing import Any

from posbias.core.errors import PluginError

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


def addresses(group: str) -> dict[str, str]:
    """The names that packages bring to a group → module:name, none of them loaded."""
    return {entry.name: entry.value for entry in entry_points(group=group)}


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
    if not isinstance(made, ModelFamily):
        made = ModelFamily(made)
    return ModelFamily(made.read, made.capture, _package(_entry(GROUP, name)))


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
        raise PluginError(f"{what}: {name!r} is brought by {_listed(map(_package, found))}, one needed")
    return found[0]


def failed(package: str, what: str, error: Exception | None = None) -> PluginError:
    """The line about a package that does not do what it should."""
    why = "" if error is None else f" ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
    return PluginError(f"package {package}: {what}{why}; update or uninstall it")


def _package(entry: EntryPoint) -> str:
    return "of an unknown name" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def _listed(words: Iterable[str]) -> str:
    return " and ".join(sorted(words))
