"""`posbias train`: the controlled retrieval experiments of Wu et al. 2025."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posbias.cli import options as shared
from posbias.cli.output import answer_with, progress
from posbias.cli.trained import cell_lines, sweep_lines, tell_untested
from posbias.core.errors import InvalidValueError

if TYPE_CHECKING:
    from posbias.training import Experiment as Trained

ITERATIONS = {"quick": 2_500, "full": 100_000}
SEQUENCES = {"quick": 2_000, "full": 10_000}
"""Test sequences per position or pair."""


@shared.options
class Experiment:
    """What is trained, unless a file says it.

    Parameters
    ----------
    mask
        causal (the default), full, window=WIDTH, prefix=LENGTH, chunk=WIDTH, dilated=STRIDE or blocks=TOKENS; a
        sequence has 2·items + 1 tokens.
    positional
        The positional encoding: none (the default), sinusoidal, rope or decay.
    normaliser
        What makes rows of attention: softmax (the default), off_by_one (a softmax beside a sink of logit 0),
        learned_sink, relu (rows divided by their sums) or sigmoid (bias −ln n).
    depth
        Number of attention layers. Default: 2.
    residual
        Add a layer's input to its output. Default: no.
    effort
        Batches to train on: quick (2,500, with 2,000 test sequences: the default, minutes on one core), full
        (100,000 and 10,000, as in the paper: an hour at depth 2 on one core), or any number.
    inputs
        Items vary within their class (gaussian_mixture, the default) or are one vector per class that share a
        direction (fixed_vocabulary).
    answers
        Items that training asks for: all (the default), or first, middle, last or numbers from 0, with commas.
    embedding
        Components of embeddings have variance 1/d (the paper, default) or standard deviation 1/d (its code).
    items
        Items with their labels in a sequence. Default: 8.
    dimension
        Dimension of items, labels and network. Default: 64.
    classes
        Classes in training. Default: 2048.
    labels
        Labels. Default: 32.
    burstiness
        How often each class of a sequence stands in it. Default: 4.
    within_class_noise
        How much items of a class differ (gaussian_mixture). Default: 0.75.
    shared_direction
        How much of their vectors all classes share (fixed_vocabulary). Default: 0.75.
    middle
        The item, from 0, that gaps call the middle. Default: half of items, the fifth of eight.
    batch
        Sequences per iteration. Default: 128.
    learning_rate
        Of AdamW. Default: 0.001.
    weight_decay
        Of AdamW. Default: 0.000001.
    precision
        Of matrix products: float32 (the default), or where the device can, tf32 (a GPU) or bfloat16 (a CPU).
    """

    mask: str | None = None
    positional: str | None = None
    normaliser: str | None = None
    depth: shared.Whole | None = None
    residual: bool | None = None
    networks: shared.Networks = None
    effort: shared.Effort | None = None
    inputs: Literal["gaussian_mixture", "fixed_vocabulary"] | None = None
    answers: str | None = None
    embedding: Literal["variance", "deviation"] | None = None
    items: shared.Whole | None = None
    dimension: shared.Whole | None = None
    classes: shared.Whole | None = None
    labels: shared.Whole | None = None
    burstiness: shared.Whole | None = None
    within_class_noise: float | None = None
    shared_direction: float | None = None
    middle: shared.Whole | None = None
    batch: shared.Whole | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    precision: Literal["float32", "tf32", "bfloat16"] | None = None

    @property
    def given(self) -> dict[str, Any]:
        """What is said."""
        return {name: value for name, value in vars(self).items() if value is not None}


@shared.options
class Options:
    """How it is trained and tested, and where it goes.

    Parameters
    ----------
    sequences
        Test sequences for each position or pair, such as 1e4. Default: 2000.
    out
        The folder to write to. Default: results/train/NAME.
    """

    sequences: shared.Many | None = None
    device: shared.Device = "cpu"
    threads: shared.TrainingThreads = None
    ray: shared.Ray = None
    gpus_per_cell: shared.GpusPerCell = 0
    out: shared.Out | None = None
    no_tests: shared.NoTests = False
    rerun: shared.Rerun = False
    json: shared.Json = False


def train(
    spec: Path | None = None, *, experiment: Experiment = Experiment(), options: Options = Options()
) -> None:
    """Train small networks to retrieve a label from their context, and measure which positions they favour.

    Several networks train as one ensemble (a cell); its curves, gaps, attention and sinks are kept as NetCDF, its
    weights as safetensors, and are not trained again. After Ctrl-C the same command goes on from there. On cuda
    compatible cells of a sweep train together.

    Parameters
    ----------
    spec
        A TOML, YAML or JSON file with the experiment's keys instead of the options, and with [sweep] a list of
        values for any of them: one cell for every combination.
    """
    _check(spec, experiment, options)
    _train(spec, experiment, options)


def _train(spec: Path | None, experiment: Experiment, options: Options) -> None:
    engine = shared.cluster(options.ray, options.threads)
    experiments, swept = _experiments(spec, experiment.given)
    from posbias.reports.answers.experiments import Cell, Train, TrainSweep
    from posbias.training import run_cells
    from posbias.training.shorthand import words_of

    name = spec.stem if spec is not None else words_of(experiments[0])
    folder = options.out or shared.RESULTS / "train" / name
    sequences = options.sequences
    if sequences is None:
        sequences = SEQUENCES["full" if experiment.effort == "full" else "quick"]
    with progress() as on_event:
        cells = run_cells(
            experiments,
            folder,
            sequences=sequences,
            tests=not options.no_tests,
            again=options.rerun,
            device=options.device,
            workers=options.threads,
            engine=engine,
            gpus_per_cell=options.gpus_per_cell,
            on_event=on_event,
        )
    if options.no_tests:
        tell_untested(folder, experiments, options.json)
    elif swept:
        answer = TrainSweep.of(cells=list(map(Cell.of, cells)))
        answer_with(answer, lambda: sweep_lines(cells), options.json)
    else:
        answer_with(Train.of(cells[0]), lambda: cell_lines(cells[0]), options.json)


def _check(spec: Path | None, experiment: Experiment, options: Options) -> None:
    """Refuse options that exclude each other."""
    if spec is not None and experiment.given:
        raise InvalidValueError(
            f"{next(iter(experiment.given))}: given with a spec file, which says it; one of the two needed"
        )
    if experiment.effort in ("quick", "full") and options.sequences is not None:
        raise InvalidValueError(
            f"sequences: given together with --effort {experiment.effort}, one of the two needed"
        )
    shared.check_threads(options.threads)


def _experiments(spec: Path | None, given: dict[str, Any]) -> "tuple[list[Trained], bool]":
    """What to train, from a file or from options, and whether it is a sweep."""
    from posbias.training import Experiment, Network, RetrievalTask, read_experiments
    from posbias.training.shorthand import answers_of, encoding_of, mask_of, normaliser_of

    if spec is not None:
        return read_experiments(spec)
    words = {"mask": mask_of, "positional": encoding_of, "normaliser": normaliser_of}
    values = {name: words[name](value) if name in words else value for name, value in given.items()}
    task, network, training = (
        {name: value for name, value in values.items() if name in part.__dataclass_fields__}
        for part in (RetrievalTask, Network, Experiment)
    )
    if "answers" in task:
        task["answers"] = answers_of(task.pop("answers"), RetrievalTask(**task))
    training["iterations"] = shared.amount(given.get("effort", "quick"), ITERATIONS)
    if "networks" in given:
        if not 1 <= given["networks"] <= 10_000:
            raise InvalidValueError(
                f"networks: {given['networks']} given, an integer from 1 to 10,000 needed"
            )
        training["seeds"] = tuple(range(given["networks"]))
    return [Experiment(task=RetrievalTask(**task), network=Network(**network), **training)], False
