"""The commands that measure a model, compare profiles and write the report."""

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from posbias.cli.speaking import Again, Json, Whole, answer_with, say
from posbias.errors import InvalidValueError
from posbias.files import need_writable
from posbias.terminal import comparison_table, describe, table

Dense = Annotated[bool, Parameter(name="--dense-logits", negative="")]
DEFAULT_MODEL = "smollm2-135m"


def measure(
    model: str = DEFAULT_MODEL,
    *,
    text: Path | None = None,
    tokens: Whole = 256,
    prompts: Whole = 32,
    seed: Whole = 0,
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
    answer_with(answer if json else None, lambda: [*describe(profile), f"measurement: {written}"])


def compare(p: Path, q: Path, *, seed: Whole = 0, json: Json = False) -> None:
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
    answer_with(answer if json else None, lambda: comparison_table(comparison, {"p": p.name}))


def report(
    source: str = DEFAULT_MODEL,
    *,
    text: Path | None = None,
    tokens: Whole | None = None,
    prompts: Whole | None = None,
    seed: Whole = 0,
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
        Length of every prompt. Default: 256.
    prompts
        Number of prompts, drawn without replacement. Default: 32.
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

    if out is not None and out.suffix == ".nc":
        raise InvalidValueError(f"out: {str(out)!r} given, a folder needed (the report is several files)")
    if source.endswith(".nc"):
        from posbias.store import load_measurement

        for name, given in (
            ("text", text),
            ("tokens", tokens),
            ("prompts", prompts),
            ("again", again or None),
        ):
            if given is not None:
                raise InvalidValueError(
                    f"{name}: given with a finished measurement, which it cannot change; a model needed"
                )

        measurement, written = load_measurement(source), Path(source)
        folder = out or written.parent
    else:
        job = {"text": text, "tokens": tokens if tokens is not None else 256, "dense_logits": False}
        job |= {"prompts": prompts if prompts is not None else 32, "seed": seed}
        measurement, written = _measurement(source, out or _results(source, job), job, again)
        folder = written.parent
    say("comparing and drawing …")
    made = write_report(measurement, folder, seed=seed)
    labels = {key: profile.about["predictor"] for key, profile in made.predictions.items()}
    answer = {"page": str(made.page), "measurement": str(written), "answer": made.answer}
    answer_with(
        answer | made.comparison.as_dict() if json else None,
        lambda: [*made.answer, "", *comparison_table(made.comparison, labels), "", f"report: {made.page}"],
    )


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

    if again and fetch is None:
        raise InvalidValueError("again: given alone, --fetch MODEL needed with it")
    if fetch is not None:
        folder = measuring.fetch(fetch, again=again, say=say)
        answer_with({"model": fetch, "folder": str(folder)} if json else None, lambda: [f"{fetch}: {folder}"])
        return
    records = [dataclasses.asdict(record) for record in measuring.available_models()]
    rows = [[r["name"], r["state"], r["licence"], r["description"]] for r in records]
    answer_with(
        {"models": [{k: str(v) if isinstance(v, Path) else v for k, v in r.items()} for r in records]}
        if json
        else None,
        lambda: table(["model", "on disk", "licence", "what"], rows),
    )


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
    # what can be known to be wrong is said before the model is loaded
    if not model:
        raise InvalidValueError("model: '' given, a name, a model folder or a .gguf file needed")
    need_writable(place)
    from posbias import measure as measuring
    from posbias.store import load_measurement, save_measurement

    measuring.check_counts(job["tokens"], job["prompts"], job["seed"])
    measuring.read_text(job["text"])
    loaded = measuring.load_model(model, say)
    fingerprint = measuring.job_fingerprint(loaded, **job)
    places = _places(place)
    while (target := next(places)).exists():
        found = load_measurement(target)
        if found.attrs.get("fingerprint") == fingerprint and not again:
            say(f"already measured: {target} (--again measures anew)")
            return found, target
    checkpoint = target.with_name(f".{target.stem}-{fingerprint[:12]}.partial.npz")
    with _progress_bar() as (progress, seen):
        try:
            measurement = measuring.measure(loaded, checkpoint=checkpoint, progress=progress, say=say, **job)
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
