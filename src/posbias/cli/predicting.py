"""The commands that only compute: predict, verify, presets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from posbias.cli.speaking import COMPILING, Json, Whole, answer_with, bar, notice, say
from posbias.errors import InputFileError, InvalidValueError, nearest
from posbias.files import need_writable
from posbias.terminal import describe, describe_variation, findings_table, table


def predict(
    architecture: str,
    *,
    tokens: Whole | None = None,
    query: Whole = -1,
    mixing: str | None = None,
    vary: str | None = None,
    depth_trajectory: Annotated[bool, Parameter(negative="")] = False,
    method: str = "auto",
    out: Path | None = None,
    plot: Path | None = None,
    threads: Whole | None = None,
    json: Json = False,
) -> None:
    """Predict the influence of every position from an architecture.

    Parameters
    ----------
    architecture
        A TOML, YAML or JSON file: ours, a Hugging Face config.json (or its folder), or a rollout file of
        Herasimchyk et al. Or the name of a preset, such as bloom-176b (`posbias presets` lists them).
    tokens
        Length of the text. Default: what the file says, else 256.
    query
        The position that is influenced, counted from 0; negative counts from the end.
    mixing
        Weight of attention in every layer instead of the file's: a number from 0 to 1, attention_only,
        abnar_zuidema or at_initialisation.
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
    threads
        Cores to use; the result is the same for any number. Default: all.
    json
        Print JSON on stdout.
    """
    import dataclasses

    from posbias.predictors import profile_as_dict
    from posbias.spec import encode
    from posbias.store import save_json

    if vary is not None and depth_trajectory:
        raise InvalidValueError("depth_trajectory: given together with --vary, one of the two needed")
    if plot is not None:
        from posbias.plots import check_kind

        check_kind(plot)
    chosen, written_for = _architecture(architecture)
    if mixing is not None:
        chosen = dataclasses.replace(chosen, mixing=_mixing(mixing))
    length = tokens if tokens is not None else written_for or 256
    about = {"architecture": encode(chosen), "assumptions": list(chosen.assumptions)}
    with notice(COMPILING):
        if vary is not None or depth_trajectory:
            quantity, varied = _varied(chosen, vary, length, query, method, threads)
            answer = {
                "varied": quantity,
                "values": [value for value, _ in varied],
                "profiles": [profile_as_dict(profile) for _, profile in varied],
            } | about
        else:
            from posbias.theory.rollout.dispatch import influence

            profile = influence(chosen, length, query, method=method, threads=threads)
            quantity, varied = "", [(length, profile)]
            answer = profile_as_dict(profile) | about
            answer |= {"exact": profile.attrs["exact"], "method": profile.attrs["method"]}
    if out is not None:
        save_json(answer, out)
    if plot is not None:
        _draw(quantity, varied, plot)
    for assumption in chosen.assumptions:
        say(f"assumed: {assumption}")
    answer_with(
        answer if json else None,
        lambda: describe_variation(quantity, varied) if quantity else describe(varied[0][1]),
    )


def verify(
    *statements: str,
    all: Annotated[bool, Parameter(name="--all", negative="")] = False,
    instances: Whole = 1000,
    seed: Whole = 0,
    out: Path = Path("results/verify"),
    json: Json = False,
) -> None:
    """Try the papers' numbered statements on random and adversarial instances.

    Each is read as printed and, where that does not survive, as amended. A counterexample is saved as a file
    that can be tried again. The table is saved as verify.json.

    Parameters
    ----------
    statements
        Keys of statements, such as wu-4.1, or of papers: wu2025, herasimchyk2026, kim2026. Default: all.
    all
        Try every statement.
    instances
        Random instances per reading of a statement; every fourth at the edge of the hypotheses.
    seed
        Seed of the draw.
    out
        Folder of verify.json and of counterexamples.
    json
        Print JSON on stdout.
    """
    from posbias.store import save_json
    from posbias.verify import STATEMENTS, save_counterexamples, select
    from posbias.verify import verify as try_all

    need_writable(out)
    chosen = list(STATEMENTS) if all or not statements else select(STATEMENTS, statements)
    with bar() as on_event:
        findings = try_all(chosen, instances=instances, seed=seed, on_event=on_event)
    answer: dict[str, Any] = {"statements": [finding.as_dict() for finding in findings]}
    answer |= {"seed": seed, "counterexamples": [str(path) for path in save_counterexamples(findings, out)]}
    written = save_json(answer, out / "verify.json")
    answer_with(answer if json else None, lambda: [*findings_table(findings), "", f"table: {written}"])


def presets(*, json: Json = False) -> None:
    """List the architectures that `posbias predict` knows by name.

    Parameters
    ----------
    json
        Print JSON on stdout.
    """
    from posbias.theory.presets import PRESETS

    rows, records = [], []
    for name, known in PRESETS.items():
        window = f"{known.window:,}" if known.window else "–"
        about = [name, f"{known.depth}", f"{known.heads}", f"{known.context:,}", window, known.exact]
        rows.append(about)
        records.append(
            {"name": name, "depth": known.depth, "heads": known.heads, "context": known.context}
            | {"window": known.window, "exact": known.exact, "assumed": list(known.assumed)}
        )
    head = ["preset", "layers", "heads", "context", "window", "what its configuration determines"]
    answer_with({"presets": records} if json else None, lambda: table(head, rows))


def _architecture(given: str) -> tuple[Any, int | None]:
    """An architecture from a file or folder, else from a preset's name, and the length its file names."""
    from posbias.theory.configs import read_architecture
    from posbias.theory.presets import PRESETS, preset

    if given in PRESETS and not Path(given).exists():
        return preset(given), None
    try:
        read = read_architecture(given)
    except InputFileError as error:
        close = nearest(given, PRESETS)
        if close and not Path(given).exists() and not Path(given).suffix:
            raise InputFileError(f"{given}: no such file and no preset{close}") from None
        raise error
    return read.architecture, read.tokens


def _varied(
    architecture: Any, vary: str | None, tokens: int, query: int, method: Any, threads: int | None
) -> tuple[str, Sequence[tuple[float, Any]]]:
    """The name of what varies, and (value, profile) for each value."""
    from posbias.theory import variation
    from posbias.theory.rollout.dispatch import trajectory

    if vary is None:
        path = trajectory(architecture, tokens, query, method=method, threads=threads)
        return "layers passed", list(enumerate(path))
    quantity, values = variation.values_of(vary)
    return quantity, variation.vary(
        architecture, quantity, values, tokens, query, method=method, threads=threads
    )


def _draw(quantity: str, varied: Sequence[tuple[float, Any]], path: Path) -> None:
    """Draw a predicted profile, or many, to a picture file of the kind the suffix names."""
    from posbias import plots

    if quantity:
        figure = plots.variation_figure(quantity, varied)
    else:
        figure = plots.new_figure()
        plots.draw_profile(figure.subplots(), varied[0][1])
    plots.save_figure(figure, path)


def _mixing(given: str) -> Any:
    """A mixing schedule from a word or a number."""
    from posbias.theory.mixing import AbnarZuidema, AttentionOnly, ConstantMixing, PreNormInit

    named = {cls.kind: cls for cls in (AttentionOnly, AbnarZuidema, PreNormInit)}
    word = given.replace("-", "_")
    if word in named:
        return named[word]()
    try:
        number = float(given)
    except ValueError:
        raise InvalidValueError(
            f"mixing: {given!r} given, a number from 0 to 1 or one of {', '.join(named)} needed"
            f"{nearest(word, named)}"
        ) from None
    try:
        return ConstantMixing(number)
    except InvalidValueError:
        raise InvalidValueError(f"mixing: {given} given, a number from 0 to 1 needed") from None
