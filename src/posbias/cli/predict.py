"""`posbias predict`: the influence of every position from an architecture."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posbias.cli import options as shared
from posbias.cli.output import COMPILING, answer_with, notice
from posbias.errors import InputFileError, InvalidValueError, nearest
from posbias.terminal import describe, describe_variation

log = logging.getLogger(__name__)
BUNDLED = Path(__file__).parents[1] / "measurement" / "models" / "bundled"
"""The small models that come along, each a folder with its configuration."""


@shared.options
class Options:
    """What is predicted, and how.

    Parameters
    ----------
    tokens
        Length of the text. Default: what the file says, else 256.
    query
        The position that is influenced, counted from 0; negative counts from the end.
    mixing
        Weight of attention in every layer instead of the file's: a number from 0 to 1, `published` (of this model,
        where it is known), `init` (a network at initialisation), attention_only, abnar_zuidema, a measurement's
        .nc, or an architecture file that has it.
    vary
        What if: the profile for many values of one quantity, for instance depth=1:64, mixing=0:1,
        window=64:4096:12 (so many values) or tokens=256,1024,4096. Quantities: depth, mixing, window, decay,
        temperature, tokens.
    depth_trajectory
        The profile after every layer, from none to all.
    method
        How layers are computed: auto, sweep, fft or stream. Auto takes the fastest that is exact.
    out
        Write the prediction as JSON to this file.
    plot
        Draw the profile (or profiles) to this file (.png, .svg or .pdf).
    """

    tokens: shared.Whole | None = None
    query: shared.Whole = -1
    mixing: str | None = None
    vary: str | None = None
    depth_trajectory: shared.Flag = False
    method: str = "auto"
    out: shared.Out | None = None
    plot: Path | None = None
    threads: shared.Threads = None
    json: shared.Json = False


def predict(architecture: str, *, options: Options = Options()) -> None:
    """Predict the influence of every position from an architecture.

    Parameters
    ----------
    architecture
        A TOML, YAML or JSON file: ours, a Hugging Face config.json (or its folder), or a rollout file of
        Herasimchyk et al. Or the name of a preset, such as bloom-176b (`posbias presets` lists them), its name on
        the Hugging Face Hub, or that of a small model that comes along, such as tiny-alibi.
    """
    import dataclasses

    from posbias.predictors import profile_as_dict
    from posbias.spec import encode

    if options.vary is not None and options.depth_trajectory:
        raise InvalidValueError("depth_trajectory: given together with --vary, one of the two needed")
    if options.plot is not None:
        from posbias.plots import check_kind

        check_kind(options.plot)
    chosen, written_for = _architecture(architecture)
    if options.mixing is not None:
        chosen = dataclasses.replace(chosen, mixing=_mixing(options.mixing, chosen))
    tokens = options.tokens if options.tokens is not None else written_for or 256
    with notice(COMPILING):
        quantity, profiles = _profiles(chosen, tokens, options)
    answers = [profile_as_dict(profile) for _, profile in profiles]
    assumptions = chosen.assumptions if quantity == "tokens" else chosen.assumptions_at(tokens)
    about: dict[str, Any] = {"architecture": encode(chosen), "assumptions": list(assumptions)}
    if quantity:
        answer = {"varied": quantity, "values": [value for value, _ in profiles], "profiles": answers} | about
    else:
        attrs = profiles[0][1].attrs
        answer = answers[0] | about | {name: attrs[name] for name in ("exact", "method")}
    if options.plot is not None:
        _draw(quantity, profiles, options.plot)
    for assumption in assumptions:
        log.info("assumed: %s", assumption)
    lines = (lambda: describe_variation(quantity, profiles)) if quantity else lambda: describe(profiles[0][1])
    answer_with("predict-varied/1" if quantity else "predict/1", answer, lines, options.json, options.out)


def _architecture(given: str) -> tuple[Any, int | None]:
    """An architecture from a file or folder, else from a name, and the length its file names."""
    from posbias.theory.configs import read_architecture
    from posbias.theory.presets import PRESETS, preset

    if not Path(given).exists():
        by_name = {one.source.lower(): name for name, one in PRESETS.items()} | {
            name: name for name in PRESETS
        }
        bundled = BUNDLED / given / "config.json"
        if given.lower() in by_name:
            return preset(by_name[given.lower()]), None
        if bundled.is_file():
            return _with_known_mixing(read_architecture(bundled).architecture), None
        if not Path(given).suffix[1:].isalpha():  # a name, not a file that is not there
            small = [folder.name for folder in BUNDLED.iterdir() if folder.is_dir()]
            close = nearest(given.rpartition("/")[2].lower(), [*PRESETS, *small])
            raise InputFileError(
                f"{given}: no such file and no preset{close or ', its config.json (or the folder of it) needed'}"
            )
    read = read_architecture(given)
    return read.architecture, read.tokens


def _with_known_mixing(architecture: Any) -> Any:
    """An architecture with the λ that was measured of the model of its name, if any was."""
    import dataclasses

    from posbias.theory.known_mixing import known_mixing

    mixing = known_mixing().get(architecture.name, architecture.mixing)
    return dataclasses.replace(architecture, mixing=mixing)


def _profiles(architecture: Any, tokens: int, options: Options) -> tuple[str, Sequence[tuple[float, Any]]]:
    """The name of what varies ("": nothing), and (value, profile) for each value."""
    from posbias.theory.prediction import predict
    from posbias.theory.rollout.dispatch import trajectory

    how: dict[str, Any] = {"method": options.method, "threads": options.threads}
    if options.depth_trajectory:
        return "layers passed", list(enumerate(trajectory(architecture, tokens, options.query, **how)))
    if options.vary is None:
        return "", [(tokens, predict(architecture, tokens, options.query, **how))]
    from posbias.theory import variation

    quantity, values = variation.values_of(options.vary)
    return quantity, variation.vary(architecture, quantity, values, tokens, options.query, **how)


def _draw(quantity: str, varied: Sequence[tuple[float, Any]], path: Path) -> None:
    """Draw a predicted profile, or many, to a picture file of the kind the suffix names."""
    from posbias import plots

    if quantity:
        figure = plots.variation_figure(quantity, varied)
    else:
        figure = plots.new_figure()
        plots.draw_profile(figure.subplots(), varied[0][1])
    plots.save_figure(figure, path)


def _mixing(given: str, architecture: Any) -> Any:
    """A mixing schedule from a word, a number, or a file that has one."""
    from posbias.theory.mixing import AbnarZuidema, AttentionOnly, ConstantMixing, PreNormInit

    named: dict[str, Any] = {cls.kind: cls for cls in (AttentionOnly, AbnarZuidema, PreNormInit)}
    named |= {"init": PreNormInit, "published": lambda: _published(architecture)}
    word = given.replace("-", "_")
    if word in named:
        return named[word]()
    if Path(given).suffix == ".nc":
        return _measured(given)
    try:
        number = float(given)
    except ValueError:
        if Path(given).exists():
            from posbias.theory.configs import read_architecture

            return read_architecture(given).architecture.mixing
        raise InvalidValueError(
            f"mixing: {given!r} given, a number from 0 to 1, a file or one of {', '.join(named)} needed"
            f"{nearest(word, named)}"
        ) from None
    try:
        return ConstantMixing(number)
    except InvalidValueError:
        raise InvalidValueError(f"mixing: {given} given, a number from 0 to 1 needed") from None


def _published(architecture: Any) -> Any:
    """λ of a model by its name."""
    from posbias.theory.known_mixing import known_mixing

    known = known_mixing()
    if architecture.name not in known:
        raise InvalidValueError(
            f"mixing: 'published' given, and no λ of {architecture.name or 'this architecture'} is known, "
            f"only of {', '.join(known)}"
        )
    return known[architecture.name]


def _measured(path: str) -> Any:
    """λ of a measurement: the mean over its prompts, with their length."""
    from posbias.predictors import measured_mixing
    from posbias.store import load_measurement
    from posbias.theory.mixing import MeasuredMixing

    measurement = load_measurement(path)
    text, source = (str(measurement.attrs.get(name, "")) for name in ("text", "model"))
    values = tuple(measured_mixing(measurement).tolist())
    return MeasuredMixing(values, tokens=measurement.sizes["position"], text=text, source=source)
