"""`posbias measure`: what is measured, and what the measurement says."""

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from posbias.cli import options as shared
from posbias.cli.mixing import say_mixing
from posbias.cli.output import answer_with, resumable
from posbias.reports import answers

if TYPE_CHECKING:
    import xarray as xr

    from posbias.measurement import MeasurementJob


@shared.options
class Options:
    """What is measured, on which prompts, and where it goes.

    Parameters
    ----------
    tokens
        Length of every prompt.
    prompts
        Number of prompts, drawn without replacement.
    prompting
        What the prompts are.
    influences
        Gradients in addition to that of the predicted token's probability, with commas: logit, log_probability,
        target, input (gradient times input), outputs (mean over predictions at all positions; a pass for each),
        layers (by the states after each layer), attention and feed_forward (by what that branch of each layer
        adds to the stream), of hybrids softmax and others (through layers of that kind alone).
    target
        The token whose probability the influence "target" is about, as text.
    rollouts
        Rollouts of every prompt's own attention, with commas: kernel, value (weighted by value norms), energy.
    dense_logits
        Also keep the mean logits of every layer and head as n×n matrices (large).
    head_kernels
        Also keep the averaged attention of every head as n×n matrices (large).
    loading
        How the model is loaded.
    dry_run
        Say what it would cost in memory and time, and measure nothing.
    out
        The file to write. Default: results/NAME/measurement.nc.
    """

    tokens: shared.Whole = 256
    prompts: shared.Whole = 32
    seed: shared.Seed = 0
    prompting: shared.Prompting = shared.Prompting()
    influences: shared.Names = ()
    target: str | None = None
    rollouts: shared.Names = ()
    dense_logits: shared.Flag = False
    head_kernels: shared.Flag = False
    loading: shared.Loading = shared.Loading()
    threads: shared.TorchThreads = None
    dry_run: shared.Flag = False
    out: shared.Out | None = None
    rerun: shared.Rerun = False
    json: shared.Json = False

    @property
    def job(self) -> "MeasurementJob":
        """What is measured. Raises `InvalidValueError`."""
        from posbias.measurement import MeasurementJob

        names = {one.name for one in fields(MeasurementJob)} & vars(self).keys()
        own = {name: getattr(self, name) for name in names}
        return MeasurementJob(**own, **self.prompting.as_job())


def measure(model: shared.Model = shared.DEFAULT_MODEL, *, options: Options = Options()) -> None:
    """Measure mixing, logits, attention, sinks and gradient influence of a real model, into one NetCDF file.

    An interrupted measurement goes on from its finished prompts when the same command is given again. Started by
    `torchrun --nproc-per-node N -m posbias measure …`, N processes share the prompts.
    """
    from posbias.measurement import estimate_cost, prepared

    if options.out is not None and options.out.suffix != ".nc":
        raise shared.wrong("out", "a name ending in .nc", str(options.out))
    job = options.job
    if options.dry_run:
        _ = job.source  # what is wrong with the text is said before the model is loaded
        loaded = options.loading.load(model, job.tokens)
        prepared(loaded, job)
        cost = estimate_cost(loaded, job)
        answer_with(answers.MeasureCost.of(cost), cost.lines, options.json)
        return
    place = options.out or results_of(model, options.prompting, job)
    finished = measured(model, place, job, options.loading, options.threads, options.rerun)
    if finished is None:
        return
    measurement, written = finished
    from posbias.comparison.predictors import measured_mixing
    from posbias.profiles.profile import measured_influence
    from posbias.reports.profile_sentences import describe

    profile = measured_influence(measurement)
    answer = answers.Measure.of(
        profile,
        file=written,
        prompts=measurement.sizes["prompt"],
        mixing=measured_mixing(measurement),
        sink_share=measurement["sink_share"].mean().item(),
        selfcheck=json.loads(measurement.attrs["selfcheck"]),
        skipped=json.loads(measurement.attrs["skipped"]),
        bos=measurement.attrs.get("bos"),
    )
    bos = f"prompts begin with {answer.bos}" if answer.bos else "prompts begin without a BOS token"
    bos += ", as the tokenizer writes them" if options.prompting.bos is None else ""
    lines = [*describe(profile), bos, f"measurement: {written}"]
    if "encoder" in measurement.attrs:
        lines.insert(-2, "an encoder: influence on the output at the last position, which sees all")
    say_mixing(answer.mixing)
    answer_with(answer, lambda: lines, options.json)


def results_of(model: str, prompting: shared.Prompting, job: "MeasurementJob") -> Path:
    """results/NAME: model, tokens × prompts, and text and seed unless they are the default."""
    words = [Path(model).name, f"{job.tokens}x{job.prompts}", *prompting.words]
    return shared.RESULTS / "-".join([*words, *([f"seed{job.seed}"] if job.seed else [])])


def measured(
    model: str, place: Path, job: "MeasurementJob", loading: shared.Loading, threads: int | None, rerun: bool
) -> "tuple[xr.Dataset, Path] | None":
    """The measurement and its file, as of `find_or_measure`, with a bar while it is made."""
    from posbias.measurement import find_or_measure

    held = vars(loading)
    with resumable() as hear:
        return find_or_measure(model, place, job, loading=held, threads=threads, rerun=rerun, on_event=hear)
