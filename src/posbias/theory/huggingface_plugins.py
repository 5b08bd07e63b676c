"""Families of Hugging Face configurations that other packages read (`posbias.core.plugins`)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from posbias.core import plugins
from posbias.core.errors import PosbiasError
from posbias.theory.architecture import Architecture
from posbias.theory.huggingface_families import Family
from posbias.theory.huggingface_keys import Config


def plugged(family: str) -> Family | Callable[[Config, str], Architecture]:
    """The row of a family that a package brings, or a function of configuration and name; both say who reads.

    Raises `PluginError`, naming the package, for what cannot be loaded or is neither.
    """
    found = plugins.family(family)
    if found is None:
        raise KeyError(family)
    remark = f"{family}: read by the package {found.package}, not by posbias"
    if isinstance(found.read, Family):
        return replace(found.read, remarks=(*found.read.remarks, remark))
    if not callable(found.read):
        given = type(found.read).__name__
        raise plugins.failed(
            found.package, f"{given} given for {family}, a row Family(…) or a function needed"
        )

    def read(config: Config, name: str) -> Architecture:
        return _made(found, family, dict(config), name, remark)

    return read


def _made(
    found: plugins.ModelFamily, family: str, config: dict[str, Any], name: str, remark: str
) -> Architecture:
    """What a package's function makes of a configuration, checked."""
    try:
        made = found.read(config)
    except PosbiasError:
        raise
    except Exception as error:  # whatever a package raises
        raise plugins.failed(found.package, f"a configuration of {family} cannot be read", error) from error
    if not isinstance(made, Architecture):
        given = type(made).__name__
        raise plugins.failed(
            found.package, f"{given} made of a configuration of {family}, an Architecture needed"
        )
    return replace(made, name=made.name or name, remarks=(*made.remarks, remark))
