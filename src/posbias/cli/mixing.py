"""λ of an architecture as commands take it: by a word, a number, a model's name or a file."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from posbias.cli.options import wrong
from posbias.core.errors import InvalidValueError, nearest

log = logging.getLogger(__name__)


def with_mixing(given: str, architecture: Any) -> Any:
    """An architecture with λ from a word, a number, a model's name, or a file that has it.

    Measured λ of another depth is taken at the same relative depth, which a remark says.
    """
    from posbias.theory.mixing import MeasuredMixing, at_depth

    mixing, depth = _mixing_from(given, architecture.name), architecture.depth
    if not isinstance(mixing, MeasuredMixing) or len(mixing.coefficients) == depth:
        return replace(architecture, mixing=mixing)
    layers = len(mixing.coefficients)
    remark = f"mixing: λ of {Path(given).name} ({layers} layers) at the same relative depth of {depth} layers"
    return replace(architecture, mixing=at_depth(mixing, depth), remarks=(*architecture.remarks, remark))


def say_mixing(by_layer: Any) -> None:
    """Say λ of every layer, with -v; None: not known."""
    if by_layer is not None:
        log.debug("λ by layer, bottom first: %s", " ".join(f"{one:.3g}" for one in by_layer))


def _mixing_from(given: str, name: str) -> Any:
    """A mixing schedule from a word, a number, a model's name, or a file that has one."""
    from posbias.theory import mixing

    known, word = mixing.known_mixing(), given.replace("-", "_")
    plain = mixing.AttentionOnly, mixing.AbnarZuidema, mixing.PreNormInit, mixing.TrainedMedian
    kinds = {cls.kind: cls for cls in plain} | {"init": mixing.PreNormInit}
    if word in kinds:
        return kinds[word]()
    if word == "published" and name not in known:
        raise wrong("mixing", f"a model of published λ ({', '.join(known)})", name or "this architecture")
    if word == "published" or given in known:
        return known[name if word == "published" else given]
    if Path(given).suffix == ".nc":
        return _measured(given)
    if Path(given).exists():
        from posbias.theory.configs import read_architecture

        return read_architecture(given).architecture.mixing
    try:
        return mixing.ConstantMixing(float(given))
    except (ValueError, InvalidValueError):
        words = [*kinds, "published", *known]
        what = f"a number from 0 to 1, a file, or one of {', '.join(words)}{nearest(word, words)}"
        raise wrong("mixing", what, given) from None


def _measured(path: str) -> Any:
    """λ of a measurement: the mean over its prompts, with their length."""
    from posbias.comparison.predictors import measured_mixing
    from posbias.profiles.measurements import load_measurement
    from posbias.theory.mixing import MeasuredMixing

    measurement = load_measurement(path, needs=("mixing",))
    text, source = (str(measurement.attrs.get(name, "")) for name in ("text", "model"))
    values = tuple(measured_mixing(measurement).tolist())
    return MeasuredMixing(values, tokens=measurement.sizes["position"], text=text, source=source)
