"""What `posbias predict` is given: an architecture by its file or name, and λ by a word, a number or a file."""

from pathlib import Path
from typing import Any

from posbias.core.arguments import shortened
from posbias.core.errors import InputFileError, InvalidValueError, nearest
from posbias.core.plugins import bundled


def architecture_from(given: str) -> tuple[Any, int | None]:
    """An architecture from a file or folder, else from a name, and the length its file names."""
    from posbias.theory.configs import read_architecture
    from posbias.theory.presets import PRESETS, preset

    if not Path(given).exists():
        by_name = _presets()
        if given.lower() in by_name:
            return preset(by_name[given.lower()]), None
        if given in bundled():
            return _with_known_mixing(read_architecture(bundled()[given] / "config.json").architecture), None
        if not Path(given).suffix[1:].isalpha():  # a name, not a file that is not there
            close = nearest(given.rpartition("/")[2].lower(), [*PRESETS, *bundled()])
            raise InputFileError(
                f"{given}: no such file and no preset{close or ', its config.json (or the folder of it) needed'}"
            )
    if Path(given).suffix == ".nc":
        raise InputFileError(
            f"{given}: a measurement's .nc given, an architecture needed: a file of one, or the name of a preset; "
            "--calibrate and --mixing take a measurement"
        )
    read = read_architecture(given)
    return read.architecture, read.tokens


def need_profile(given: Path) -> None:
    """Raise `InputFileError` where an architecture is given and a file with a profile is needed."""
    name = str(given)
    if not given.exists():
        what = "an architecture's name" if name.lower() in _presets() or name in bundled() else None
    elif given.suffix in (".toml", ".yaml", ".yml") or given.name == "config.json":
        what = "an architecture's file"
    else:
        what = "a model's folder" if (given / "config.json").is_file() else None
    if what is not None:
        raise InputFileError(
            f"{name}: {what} given, a file with a profile needed: a measurement's .nc, a list of weights, or the "
            f"JSON that `posbias predict {name} --tokens N --out FILE` writes"
        )


def _presets() -> dict[str, str]:
    """The name of a preset by what it may be called: itself, or its name on the Hugging Face Hub."""
    from posbias.theory.presets import PRESETS

    return {one.source.lower(): name for name, one in PRESETS.items()} | {name: name for name in PRESETS}


def _with_known_mixing(architecture: Any) -> Any:
    """An architecture with the λ that was measured of the model of its name, if any was."""
    import dataclasses

    from posbias.theory.mixing import known_mixing

    mixing = known_mixing().get(architecture.name, architecture.mixing)
    return dataclasses.replace(architecture, mixing=mixing)


def with_mixing(given: str, architecture: Any) -> Any:
    """An architecture with λ from a word, a number, a model's name, or a file that has it.

    Measured λ of another depth is taken at the same relative depth, which a remark says.
    """
    from dataclasses import replace

    from posbias.theory.mixing import MeasuredMixing, at_depth

    mixing, depth = _mixing_from(given, architecture), architecture.depth
    if not isinstance(mixing, MeasuredMixing) or len(mixing.coefficients) == depth:
        return replace(architecture, mixing=mixing)
    layers = len(mixing.coefficients)
    remark = f"mixing: λ of {Path(given).name} ({layers} layers) at the same relative depth of {depth} layers"
    return replace(architecture, mixing=at_depth(mixing, depth), remarks=(*architecture.remarks, remark))


def _mixing_from(given: str, architecture: Any) -> Any:
    """A mixing schedule from a word, a number, a model's name, or a file that has one."""
    from posbias.theory.mixing import (
        AbnarZuidema,
        AttentionOnly,
        ConstantMixing,
        PreNormInit,
        TrainedMedian,
        known_mixing,
    )

    named: dict[str, Any] = {
        cls.kind: cls for cls in (AttentionOnly, AbnarZuidema, PreNormInit, TrainedMedian)
    }
    named |= {"init": PreNormInit, "published": lambda: _published(architecture)}
    word = given.replace("-", "_")
    if word in named:
        return named[word]()
    known = known_mixing()
    if given in known:
        return known[given]
    if Path(given).suffix == ".nc":
        return _measured(given)
    try:
        number = float(given)
    except ValueError:
        if Path(given).exists():
            from posbias.theory.configs import read_architecture

            return read_architecture(given).architecture.mixing
        raise InvalidValueError(
            f"mixing: {shortened(given)} given, a number from 0 to 1, a file, one of {', '.join(named)} or a "
            f"model whose λ is known ({', '.join(known)}) needed{nearest(word, [*named, *known])}"
        ) from None
    try:
        return ConstantMixing(number)
    except InvalidValueError:
        raise InvalidValueError(f"mixing: {given} given, a number from 0 to 1 needed") from None


def _published(architecture: Any) -> Any:
    """λ of a model by its name."""
    from posbias.theory.mixing import known_mixing

    known = known_mixing()
    if architecture.name not in known:
        raise InvalidValueError(
            f"mixing: 'published' given, and no λ of {architecture.name or 'this architecture'} is known, "
            f"only of {', '.join(known)}"
        )
    return known[architecture.name]


def _measured(path: str) -> Any:
    """λ of a measurement: the mean over its prompts, with their length."""
    from posbias.comparison.predictors import measured_mixing
    from posbias.profiles.measurements import load_measurement
    from posbias.theory.mixing import MeasuredMixing

    measurement = load_measurement(path, needs=("mixing",))
    text, source = (str(measurement.attrs.get(name, "")) for name in ("text", "model"))
    values = tuple(measured_mixing(measurement).tolist())
    return MeasuredMixing(values, tokens=measurement.sizes["position"], text=text, source=source)
