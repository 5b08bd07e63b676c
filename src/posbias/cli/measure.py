"""`posbias measure`: a measurement found where it was stored, or measured, resumed, shared and stored."""

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.cli import options as shared
from posbias.cli.output import answer_with, computed_once
from posbias.core.files import need_writable

if TYPE_CHECKING:
    import xarray as xr

    from posbias.measurement import LoadedModel

Job = dict[str, Any]
"""Arguments of `posbias.measure`."""


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
        target, input (gradient times input), outputs (mean over predictions at all positions; a pass for each).
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
    def job(self) -> Job:
        """The same as arguments of `measure`, without the target. Raises `InvalidValueError`."""
        if (self.target is None) == ("target" in self.influences):
            raise shared.wrong("target", "--target TEXT with --influences target alone", self.target)
        own = ("tokens", "prompts", "seed", "influences", "rollouts", "dense_logits", "head_kernels")
        return {name: getattr(self, name) for name in own} | self.prompting.as_job()


def measure(model: shared.Model = shared.DEFAULT_MODEL, *, options: Options = Options()) -> None:
    """Measure mixing, logits, attention, sinks and gradient influence of a real model, into one NetCDF file.

    An interrupted measurement goes on from its finished prompts when the same command is given again. Started by
    `torchrun --nproc-per-node N -m posbias measure …`, N processes share the prompts.
    """
    from posbias.reports.answers.measurements import Measure, MeasureCost

    if options.out is not None and options.out.suffix != ".nc":
        raise shared.wrong("out", "a name ending in .nc", str(options.out))
    job = options.job
    if options.dry_run:
        cost = _cost(model, options.loading, job, options.target)
        answer_with(MeasureCost.of(cost), cost.lines, options.json)
        return
    place = options.out or results_of(model, options.prompting, job)
    how = (options.loading, options.threads, options.rerun)
    finished = measured(model, place, job, *how, options.target)
    if finished is None:
        return
    measurement, written = finished
    from posbias.comparison.predictors import measured_mixing
    from posbias.profiles.profile import measured_influence
    from posbias.reports.profile_sentences import describe

    profile = measured_influence(measurement)
    answer = Measure.of(
        file=written,
        model=measurement.attrs["model"],
        tokens=options.tokens,
        prompts=measurement.sizes["prompt"],
        influence=profile.mass,
        summary=profile.summary,
        doubts=profile.doubts,
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
    answer_with(answer, lambda: lines, options.json)


def results_of(model: str, prompting: shared.Prompting, job: Job) -> Path:
    """results/NAME: model, tokens × prompts, and text and seed unless they are the default."""
    words = [Path(model).name, f"{job['tokens']}x{job['prompts']}", *prompting.words]
    return shared.RESULTS / "-".join([*words, *([f"seed{job['seed']}"] if job["seed"] else [])])


def measured(
    model: str,
    place: Path,
    job: Job,
    loading: shared.Loading,
    threads: int | None,
    rerun: bool,
    target: str | None = None,
) -> "tuple[xr.Dataset, Path] | None":
    """Measure, or take an existing measurement, and return it with its file.

    `place` is the .nc file to write, or the folder to write it in. A finished measurement of the same job is
    used as it is; one of another job stays, and the new one is written next to it (as with `rerun`). What an
    interruption leaves is resumed. Of several processes, all measure and the first one writes; the others get
    None.
    """
    # what can be known to be wrong is said before the model is loaded
    need_writable(place)
    shared.check_threads(threads)
    _check(model, job)
    from posbias import measurement as measuring
    from posbias.measurement.streaming import group

    with group() as processes:
        loaded = loading.load(model, job["tokens"], processes.local_rank, processes.first)
        job = _with_target(job, loaded, target)
        fingerprint = measuring.job_fingerprint(loaded, **job)
        compute = functools.partial(measuring.measure, loaded, **job, threads=threads)
        return computed_once("measurement", place, fingerprint, job["prompts"], compute, rerun, processes)


def _cost(model: str, loading: shared.Loading, job: Job, target: str | None) -> Any:
    """What a measurement would cost: memory, and time as one short prompt tells it."""
    _check(model, job)
    from posbias import measurement as measuring

    loaded = loading.load(model, job["tokens"])
    request = measuring.Request(**_with_target(job, loaded, target))
    measuring.prepared(loaded, request)
    return measuring.estimate_cost(loaded, request)


def _check(model: str, job: Job) -> None:
    """Raise for what is wrong whatever the model, the text among it."""
    from posbias.measurement import Request

    if not model:
        raise shared.wrong("model", "a name, a model folder, a .gguf file or a hub id", model)
    unknown_yet = 0 if "target" in job.get("influences", ()) else None
    _ = Request(**job, target=unknown_yet).source


def _with_target(job: Job, loaded: "LoadedModel", target: str | None) -> Job:
    """The job, with the target's number in the model's vocabulary."""
    if target is None:
        return job
    ids = loaded.tokenizer(target, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise shared.wrong("target", f"text that is one token of this model, not {len(ids)}", target)
    return job | {"target": int(ids[0])}
