"""The command line: one short function per command.

stdout is the answer (text, or one JSON value with --json), stderr the progress. Whatever goes wrong is one
line on stderr: exit code 2 for input that cannot be right, 130 after Ctrl-C; --debug shows the traceback.
"""

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from posbias import __version__
from posbias.errors import InvalidValueError, PosbiasError, nearest
from posbias.terminal import comparison_table, describe, table

app = App(
    name="posbias",
    version=__version__,
    help="Predict, measure and compare position bias in transformers: where a model looks in its context, "
    "and where it does not.",
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
)

Json = Annotated[bool, Parameter(name="--json", negative="")]
Again = Annotated[bool, Parameter(name="--again", negative="")]
Dense = Annotated[bool, Parameter(name="--dense-logits", negative="")]
DEFAULT_MODEL = "smollm2-135m"
COMPILING = "loading the sweep (compiled on first use, which takes some seconds)"


@app.command
def predict(
    architecture: Path,
    *,
    tokens: int | None = None,
    query: int = -1,
    mixing: str | None = None,
    out: Path | None = None,
    plot: Path | None = None,
    threads: int | None = None,
    json: Json = False,
) -> None:
    """Predict the influence of every position from an architecture.

    Parameters
    ----------
    architecture
        A TOML, YAML or JSON file: ours, a Hugging Face config.json (or its folder), or a rollout file of
        Herasimchyk et al.
    tokens
        Length of the text. Default: what the file says, else 256.
    query
        The position that is influenced, counted from 0; negative counts from the end.
    mixing
        Weight of attention in every layer instead of the file's: a number from 0 to 1, attention_only,
        abnar_zuidema or at_initialisation.
    out
        Write the prediction as JSON to this file.
    plot
        Draw the profile to this file (.png, .svg or .pdf).
    threads
        Cores to use; the result is the same for any number. Default: all.
    json
        Print JSON on stdout.
    """
    import dataclasses

    from posbias.spec import encode
    from posbias.store import profile_as_dict, save_json
    from posbias.theory.configs import read_architecture

    read = read_architecture(architecture)
    chosen = read.architecture
    if mixing is not None:
        chosen = dataclasses.replace(chosen, mixing=_mixing(mixing))
    length = tokens if tokens is not None else read.tokens or 256
    with _notice(COMPILING):
        from posbias.theory.rollout import influence

        profile = influence(chosen, length, query, threads=threads)
    answer = profile_as_dict(profile) | {
        "architecture": encode(chosen),
        "assumptions": list(chosen.assumptions),
        "exact": profile.about["exact"],
    }
    if out is not None:
        save_json(answer, out)
    if plot is not None:
        _draw(profile, plot)
    for assumption in chosen.assumptions:
        _say(f"assumed: {assumption}")
    _answer(answer if json else None, lambda: describe(profile))


@app.command
def measure(
    model: str = DEFAULT_MODEL,
    *,
    text: Path | None = None,
    tokens: int = 256,
    prompts: int = 32,
    seed: int = 0,
    out: Path | None = None,
    dense_logits: Dense = False,
    again: Again = False,
    json: Json = False,
) -> None:
    """Measure a real model: mixing, logits, attention, sinks and gradient influence, into one NetCDF file.

    An interrupted measurement goes on from its finished prompts when the same command is given again.

    Parameters
    ----------
    model
        A name that `posbias models` lists, a model folder, or a .gguf file.
    text
        UTF-8 text to cut the prompts from. Default: the bundled State of the Union addresses.
    tokens
        Length of every prompt.
    prompts
        Number of prompts, drawn without replacement.
    seed
        Seed of the draw.
    out
        The file to write. Default: results/NAME/measurement.nc.
    dense_logits
        Also keep the mean logits of every layer and head as n×n matrices (large).
    again
        Measure even if the file is there already; the new one is written beside it.
    json
        Print JSON on stdout.
    """
    job = {"text": text, "tokens": tokens, "prompts": prompts, "seed": seed, "dense_logits": dense_logits}
    if out is not None and out.suffix != ".nc":
        raise InvalidValueError(f"out: {str(out)!r} given, a name ending in .nc needed")
    measurement, written = _measurement(model, out or _results(model, job), job, again)
    from posbias.predictors import measured_influence, measured_mixing

    profile = measured_influence(measurement)
    answer = {
        "file": str(written),
        "model": measurement.attrs["model"],
        "tokens": tokens,
        "prompts": prompts,
        "influence": profile.mass,
        "summary": profile.summary.as_dict(),
        "mixing": measured_mixing(measurement),
        "sink_share": float(measurement["sink_share"].mean()),
    }
    _answer(answer if json else None, lambda: [*describe(profile), f"measurement: {written}"])


@app.command
def compare(p: Path, q: Path, *, seed: int = 0, json: Json = False) -> None:
    """Compare a profile with a reference: Spearman and 1-Wasserstein, beside baselines and the ceiling.

    Parameters
    ----------
    p
        The profile in question: a prediction's JSON, a JSON list of weights, or a measurement's .nc.
    q
        The reference, in any of the same forms; a .nc brings its prompts, and so intervals and the ceiling.
    seed
        Seed of the bootstrap over prompts.
    json
        Print JSON on stdout.
    """
    from posbias.comparison import compare
    from posbias.store import load_profile

    comparison = compare(load_profile(p), load_profile(q), seed=seed)
    agreement = comparison.agreements["p"].as_dict()
    answer = {name: score["value"] for name, score in agreement.items()}
    answer["intervals"] = {name: score["interval"] for name, score in agreement.items()}
    answer |= {key: value for key, value in comparison.as_dict().items() if key != "agreements"}
    _answer(answer if json else None, lambda: comparison_table(comparison, {"p": p.name}))


@app.command
def report(
    source: str = DEFAULT_MODEL,
    *,
    text: Path | None = None,
    tokens: int = 256,
    prompts: int = 32,
    seed: int = 0,
    out: Path | None = None,
    again: Again = False,
    json: Json = False,
) -> None:
    """Measure a model, predict it five ways, compare, and write a report that opens in any browser.

    Parameters
    ----------
    source
        A model (as for `posbias measure`), or the .nc of a finished measurement.
    text
        UTF-8 text to cut the prompts from. Default: the bundled State of the Union addresses.
    tokens
        Length of every prompt.
    prompts
        Number of prompts, drawn without replacement.
    seed
        Seed of the draw and of the bootstrap.
    out
        The folder to write to. Default: results/NAME.
    again
        Measure even if the folder holds this measurement already; the new one is written beside it.
    json
        Print JSON on stdout.
    """
    from posbias.report import write_report

    if source.endswith(".nc"):
        from posbias.store import load_measurement

        measurement, written = load_measurement(source), Path(source)
        folder = out or written.parent
    else:
        job = {"text": text, "tokens": tokens, "prompts": prompts, "seed": seed, "dense_logits": False}
        measurement, written = _measurement(source, out or _results(source, job), job, again)
        folder = written.parent
    _say("comparing and drawing …")
    made = write_report(measurement, folder, seed=seed)
    labels = {key: profile.about["predictor"] for key, profile in made.predictions.items()}
    answer = {"page": str(made.page), "measurement": str(written), "answer": made.answer}
    _answer(
        answer | made.comparison.as_dict() if json else None,
        lambda: [*made.answer, "", *comparison_table(made.comparison, labels), "", f"report: {made.page}"],
    )


@app.command
def models(*, fetch: str | None = None, again: Again = False, json: Json = False) -> None:
    """List the models that can be named, and whether they are on this machine.

    Parameters
    ----------
    fetch
        Download and convert this model now.
    again
        Fetch it anew even if it is there.
    json
        Print JSON on stdout.
    """
    import dataclasses

    from posbias import measure as measuring

    if fetch is not None:
        folder = measuring.fetch(fetch, again=again, say=_say)
        _answer({"model": fetch, "folder": str(folder)} if json else None, lambda: [f"{fetch}: {folder}"])
        return
    records = [dataclasses.asdict(record) for record in measuring.available_models()]
    rows = [
        [r["name"], "cached" if r["cached"] else "not yet", r["licence"], r["description"]] for r in records
    ]
    _answer(
        {"models": [{k: str(v) if isinstance(v, Path) else v for k, v in r.items()} for r in records]}
        if json
        else None,
        lambda: table(["model", "on disk", "licence", "what"], rows),
    )


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 2 input that cannot be right, 130 interrupted."""
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    try:
        app(
            [word for word in given if word != "--debug"],
            exit_on_error=False,
            print_error=False,
            help_on_error=False,
            result_action="return_value",
        )
    except PosbiasError as error:
        if debug:
            raise
        _fail(str(error), 2)
    except CycloptsError as error:
        _fail(" ".join(str(error).split()), 2)
    except KeyboardInterrupt as interrupt:
        if debug:
            raise
        _fail(f"interrupted{': ' + str(interrupt) if str(interrupt) else ''}", 130)
    except BrokenPipeError:
        # the reader of our output left; there is nobody to tell
        sys.stderr.close()
        raise SystemExit(141) from None
    except MemoryError as error:
        if debug:
            raise
        _fail(f"out of memory ({error}); fewer tokens or prompts needed", 2)


def _fail(message: str, code: int) -> None:
    sys.stderr.write(f"posbias: {message}\n")
    raise SystemExit(code)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _answer(data: Any, lines: Callable[[], list[str]]) -> None:
    from posbias.store import dump_json

    sys.stdout.write((dump_json(data) if data is not None else "\n".join(lines())) + "\n")
    sys.stdout.flush()


@contextmanager
def _notice(line: str, after: float = 2.0) -> Iterator[None]:
    """Say `line` if what follows takes longer than `after` seconds."""
    timer = threading.Timer(after, _say, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _mixing(given: str) -> Any:
    """A mixing schedule from a word or a number."""
    from posbias.theory.mixing import AbnarZuidema, AtInitialisation, AttentionOnly, Constant

    named = {cls.kind: cls for cls in (AttentionOnly, AbnarZuidema, AtInitialisation)}
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
    return Constant(number)


def _results(model: str, job: dict[str, Any]) -> Path:
    """results/NAME, where NAME says model, tokens × prompts, and text and seed unless they are the default."""
    name = f"{Path(model).name}-{job['tokens']}x{job['prompts']}"
    if job["text"] is not None:
        name += f"-{job['text'].stem}"
    if job["seed"]:
        name += f"-seed{job['seed']}"
    return Path("results") / name


def _measurement(model: str, place: Path, job: dict[str, Any], again: bool) -> tuple[Any, Path]:
    """Measure, or take what is there: `place` is the .nc file to write, or the folder to write it in.

    A finished measurement of the same job is used as it is; one of another job stays, and the new one is
    written beside it (as with `again`). What an interruption leaves is resumed.
    """
    from posbias import measure as measuring
    from posbias.store import load_measurement, save_measurement

    loaded = measuring.load_model(model, _say)
    fingerprint = measuring.job_fingerprint(loaded, **job)
    places = _places(place)
    while (target := next(places)).exists():
        found = load_measurement(target)
        if found.attrs.get("fingerprint") == fingerprint and not again:
            _say(f"already measured: {target} (--again measures anew)")
            return found, target
    checkpoint = target.with_name(f".{target.stem}-{fingerprint[:12]}.partial.npz")
    with _progress_bar() as (progress, seen):
        try:
            measurement = measuring.measure(loaded, checkpoint=checkpoint, progress=progress, say=_say, **job)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"{seen[0]} of {job['prompts']} prompts are kept, the same command goes on from there"
            ) from None
    save_measurement(measurement, target)
    measuring.discard_checkpoint(checkpoint)
    return measurement, target


def _places(place: Path) -> Iterator[Path]:
    """`place` and the names beside it: a.nc, a-2.nc, …, or folder/measurement.nc, folder-2/measurement.nc, …"""
    for number in itertools.count(1):
        suffix = "" if number == 1 else f"-{number}"
        if place.suffix == ".nc":
            yield place.with_name(f"{place.stem}{suffix}.nc")
        else:
            yield place.with_name(place.name + suffix) / "measurement.nc"


@contextmanager
def _progress_bar() -> Iterator[tuple[Callable[[int, int], None], list[int]]]:
    """A bar of prompts on stderr: a function to call with (finished, total), and what it last heard."""
    from tqdm import tqdm

    seen = [0]
    bars: list[Any] = []

    def progress(finished: int, total: int) -> None:
        if not bars:
            bars.append(
                tqdm(total=total, initial=finished, unit="prompt", file=sys.stderr, dynamic_ncols=True)
            )
        bars[0].update(finished - bars[0].n)
        seen[0] = finished

    try:
        yield progress, seen
    finally:
        for bar in bars:
            bar.close()


def _draw(profile: Any, path: Path) -> None:
    """Draw a predicted profile to a picture file of the kind its suffix names."""
    from posbias.plots import draw_profile, new_figure, save_figure

    figure = new_figure()
    draw_profile(figure.subplots(), profile)
    save_figure(figure, path)


if __name__ == "__main__":
    main()
