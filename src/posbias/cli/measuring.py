"""The commands that measure a model, compare profiles and write the report."""

from pathlib import Path

from posbias.cli.asking import DEFAULT_MODEL, Flag, Loading, Names, Prompting
from posbias.cli.measured import cost_of, decoded, measured, results_of
from posbias.cli.speaking import Again, Json, Whole, answer_with, say
from posbias.errors import InvalidValueError
from posbias.terminal import comparison_table, describe

_LOADING, _PROMPTING = Loading(), Prompting()


def measure(
    model: str = DEFAULT_MODEL,
    *,
    tokens: Whole = 256,
    prompts: Whole = 32,
    seed: Whole = 0,
    prompting: Prompting = _PROMPTING,
    influences: Names = (),
    target: str | None = None,
    rollouts: Names = (),
    dense_logits: Flag = False,
    head_kernels: Flag = False,
    loading: Loading = _LOADING,
    dry_run: Flag = False,
    out: Path | None = None,
    again: Again = False,
    json: Json = False,
) -> None:
    """Measure a real model: mixing, logits, attention, sinks and gradient influence, into one NetCDF file.

    An interrupted measurement goes on from its finished prompts when the same command is given again. Started by
    `torchrun --nproc-per-node N -m posbias measure …`, N processes share the prompts.

    Parameters
    ----------
    model
        A name that `posbias models` lists, a model folder, a .gguf file, or the id of a model on a hub.
    tokens
        Length of every prompt.
    prompts
        Number of prompts, drawn without replacement.
    seed
        Seed of the draw.
    influences
        Gradients beside that of the predicted token's probability, with commas: logit, log_probability, target,
        input (gradient times input).
    target
        The token whose probability the influence "target" is about, as text.
    rollouts
        Rollouts of every prompt's own attention, with commas: kernel, value (weighted by value norms), energy.
    dense_logits
        Also keep the mean logits of every layer and head as n×n matrices (large).
    head_kernels
        Also keep the averaged attention of every head as n×n matrices (large).
    dry_run
        Say what it would cost in memory and time, and measure nothing.
    out
        The file to write. Default: results/NAME/measurement.nc.
    again
        Measure even if the file is there already; the new one is written beside it.
    json
        Print JSON on stdout.
    """
    if out is not None and out.suffix != ".nc":
        raise InvalidValueError(f"out: {str(out)!r} given, a name ending in .nc needed")
    asked = {"tokens": tokens, "prompts": prompts, "seed": seed, **prompting.as_job()}
    asked |= {"influences": influences, "rollouts": rollouts}
    asked |= {"dense_logits": dense_logits, "head_kernels": head_kernels}
    if target is None and "target" in influences:
        raise InvalidValueError("target: none given, --target TEXT needed with the influence 'target'")
    if target is not None and "target" not in influences:
        raise InvalidValueError(f"target: {target!r} given, --influences target needed with it")
    place = out or results_of(model, prompting, asked)
    if dry_run:
        cost = cost_of(model, loading, asked, target)
        answer_with(cost.as_dict() if json else None, cost.lines)
        return
    made = measured(model, place, loading, asked, again, target)
    if made is None:
        return
    measurement, written = made
    from posbias.predictors import measured_influence, measured_mixing

    profile = measured_influence(measurement)
    answer = {
        "file": str(written),
        "model": measurement.attrs["model"],
        "tokens": tokens,
        "prompts": measurement.sizes["prompt"],
        "influence": profile.mass,
        "summary": profile.summary.as_dict(),
        "mixing": measured_mixing(measurement),
        "sink_share": float(measurement["sink_share"].mean()),
        "selfcheck": decoded(measurement.attrs["selfcheck"]),
        "skipped": decoded(measurement.attrs["skipped"]),
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
    from posbias.predictors import load_profile

    comparison = compare(load_profile(p), load_profile(q), seed=seed)
    agreement = comparison.agreements["p"].as_dict()
    answer = {name: score["value"] for name, score in agreement.items()}
    answer["intervals"] = {name: score["interval"] for name, score in agreement.items()}
    answer |= {key: value for key, value in comparison.as_dict().items() if key != "agreements"}
    answer_with(answer if json else None, lambda: comparison_table(comparison, {"p": p.name}))


def report(
    source: str = DEFAULT_MODEL,
    *,
    tokens: Whole | None = None,
    prompts: Whole | None = None,
    seed: Whole = 0,
    prompting: Prompting = _PROMPTING,
    loading: Loading = _LOADING,
    out: Path | None = None,
    again: Again = False,
    json: Json = False,
) -> None:
    """Measure a model, predict it five ways, compare, and write a report that opens in any browser.

    Parameters
    ----------
    source
        A model (as for `posbias measure`), or the .nc of a finished measurement.
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
    from posbias.reports import write_report

    if out is not None and out.suffix == ".nc":
        raise InvalidValueError(f"out: {str(out)!r} given, a folder needed (the report is several files)")
    if source.endswith(".nc"):
        from posbias.store import load_measurement

        given = {"tokens": tokens, "prompts": prompts, "again": again or None}
        given |= {name: value or None for name, value in vars(prompting).items()}
        given |= {name: value for name, value in vars(loading).items() if value != getattr(_LOADING, name)}
        for name, value in given.items():
            if value is not None:
                raise InvalidValueError(
                    f"{name}: given with a finished measurement, which it cannot change; a model needed"
                )

        measurement, written = load_measurement(source), Path(source)
        folder = out or written.parent
    else:
        asked = {"tokens": 256 if tokens is None else tokens, "prompts": 32 if prompts is None else prompts}
        asked |= {"seed": seed, **prompting.as_job()}
        made = measured(source, out or results_of(source, prompting, asked), loading, asked, again)
        if made is None:
            return
        measurement, written = made
        folder = written.parent
    say("comparing and drawing …")
    page = write_report(measurement, folder, seed=seed)
    labels = {key: profile.attrs["predictor"] for key, profile in page.predictions.items()}
    answer = {"page": str(page.page), "measurement": str(written), "answer": page.answer}
    answer_with(
        answer | page.comparison.as_dict() if json else None,
        lambda: [*page.answer, "", *comparison_table(page.comparison, labels), "", f"report: {page.page}"],
    )
