"""`posbias train`: the controlled retrieval experiments of Wu et al. 2025."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posbias.cli import options as shared
from posbias.cli.output import answer_with, progress
from posbias.core.terminal import table
from posbias.reports import answers

if TYPE_CHECKING:
    from posbias.training import Cell
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
        What makes rows of attention: softmax (the default), off_by_one (a softmax with a sink of logit 0),
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
    test_direction
        The direction of a fixed vocabulary in tests: that of training (default), or drawn for each test.
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
        Of matrix products: float32 (the default), or on a GPU tf32.
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
    test_direction: Literal["training", "drawn"] | None = None
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
    precision: Literal["float32", "tf32"] | None = None

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

    sequences: shared.Whole | None = None
    device: shared.Device = "cpu"
    threads: shared.TrainingThreads = None
    ray: shared.Ray = None
    gpus_per_cell: shared.GpusPerCell = 0
    out: shared.Out | None = None
    rerun: shared.Rerun = False
    json: shared.Json = False


def train(
    spec: Path | None = None, *, experiment: Experiment = Experiment(), options: Options = Options()
) -> None:
    """Train small networks to retrieve a label from their context, and measure which positions they favour.

    Several networks train as one ensemble (a cell); its curves, gaps, attention, sinks and weights are kept as
    NetCDF, and are not trained again. After Ctrl-C the same command goes on from there. On cuda
    compatible cells of a sweep train together.

    Parameters
    ----------
    spec
        A TOML, YAML or JSON file with the experiment's keys instead of the options, and with [sweep] a list of
        values for any of them: one cell for every combination.
    """
    if spec is not None and (given := experiment.given):
        raise shared.wrong(next(iter(given)), "none with a spec file, which says it", str(spec))
    if experiment.effort in ("quick", "full") and options.sequences is not None:
        raise shared.wrong("sequences", f"none with --effort {experiment.effort}", options.sequences)
    engine = shared.engine(None, options.ray, options.threads)
    experiments, swept = _experiments(spec, experiment.given)
    from posbias.training import run_cells
    from posbias.training.experiments import words_of

    name = spec.stem if spec is not None else words_of(experiments[0])
    folder = options.out or shared.RESULTS / "train" / name
    usual = SEQUENCES["full" if experiment.effort == "full" else "quick"]
    sequences = usual if options.sequences is None else options.sequences
    how = {"device": options.device, "workers": options.threads, "gpus_per_cell": options.gpus_per_cell}
    how |= {"sequences": sequences, "again": options.rerun, "engine": engine}
    with progress() as on_event:
        cells = run_cells(experiments, folder, on_event=on_event, **how)
    if swept:
        answer = answers.TrainSweep.of(cells=list(map(answers.Cell.of, cells)))
        answer_with(answer, lambda: _sweep_lines(cells), options.json)
    else:
        answer_with(answers.Train.of(cells[0]), lambda: _cell_lines(cells[0]), options.json)


def _experiments(spec: Path | None, given: dict[str, Any]) -> "tuple[list[Trained], bool]":
    """What to train, from a file or from options, and whether it is a sweep."""
    from posbias.training import Experiment, Network, RetrievalTask, read_experiments
    from posbias.training.experiments import experiment_of

    if spec is not None:
        return read_experiments(spec)
    inputs = given.get("inputs", RetrievalTask.inputs)
    for name, of in (("within_class_noise", "gaussian_mixture"), ("shared_direction", "fixed_vocabulary")):
        if name in given and inputs != of:
            raise shared.wrong(name, f"--inputs {of} with it", given[name])
    task, network, training = (
        {name: value for name, value in given.items() if name in part.__dataclass_fields__}
        for part in (RetrievalTask, Network, Experiment)
    )
    training["iterations"] = shared.amount(given.get("effort", "quick"), ITERATIONS)
    if "networks" in given:
        if not 1 <= given["networks"] <= 10_000:
            raise shared.wrong("networks", "an integer from 1 to 10,000", given["networks"])
        training["seeds"] = tuple(range(given["networks"]))
    return [experiment_of(training | {"task": task, "network": network})], False


def _cell_lines(cell: "Cell") -> list[str]:
    """One cell: its gaps with what kernels and theory predict, how well it does, and what that means."""
    from posbias.training import agreement
    from posbias.training.probes import ZERO, estimate_members

    tested, agreed = cell.evaluation, agreement(cell.rollout, cell.evaluation)
    kernels = "residual" if "residual" in agreed else "attention"
    own, theory = agreed[kernels].predicted, agreed["theory"].predicted
    rows = [
        [pair, str(gap.over_all.estimate), str(gap.over_informative.estimate)]
        # equal masses may differ by rounding
        + ["0" if abs(one.value) <= ZERO and not one.se else str(one) for one in (own[pair], theory[pair])]
        for pair, gap in tested.gaps.items()
    ]
    head = ["gap", "all sequences", "informative", "own kernels say", "theory says"]
    places = [estimate_members(column).value for column in tested.accuracy_by_position.T]
    shown = " ".join(f"{value:.2f}" for value in places if math.isfinite(value))
    return [
        *table(head, rows),
        "",
        f"in-context accuracy {tested.in_context_accuracy.over_members}, loss {tested.loss.over_members}; by "
        f"position of the answer {shown}",
        *_words(cell),
        *(f"theory: {assumption}" for assumption in cell.rollout.assumptions),
        f"cell: {cell.path}",
    ]


def _sweep_lines(cells: "Sequence[Cell]") -> list[str]:
    """Many cells: a line for each, on all sequences and on informative ones."""
    from posbias.training.experiments import common_words

    named = dict(zip(common_words([cell.experiment for cell in cells]), cells, strict=True))
    lines: list[str] = []
    for kind, title in (("all", "gaps on all sequences"), ("informative", "gaps on informative sequences")):
        rows = [
            [
                name,
                *(str(getattr(gap, kind)) for gap in one.gaps.values()),
                str(one.in_context_accuracy.over_members),
                str(one.loss.over_members),
            ]
            for name, one in ((name, cell.evaluation) for name, cell in named.items())
        ]
        lines += [*table([title, *cells[0].evaluation.gaps, "in-context accuracy", "loss"], rows), ""]
    lines += [f"{name}: {line}" for name, cell in named.items() for line in _words(cell)]
    return [*lines, *(f"cell: {cell.path}" for cell in cells)]


def _words(cell: "Cell") -> list[str]:
    """What the gaps on informative sequences say at 95 % (Student's t over networks), and which were stopped."""
    from posbias.training.probes import sign

    evaluation, task = cell.evaluation, cell.experiment.task
    copying, guessing = task.burstiness / task.items, 1.0 / task.labels
    accuracy = evaluation.in_context_accuracy.over_members.value
    signs = {
        tuple(pair.split("-")): sign(gap.over_informative.estimate) for pair, gap in evaluation.gaps.items()
    }
    favours = [" over ".join(pair[::way]) for pair, way in signs.items() if way]
    open_ = [" and ".join(pair) for pair, way in signs.items() if not way]
    said = [f"favours {', '.join(favours)}"] * bool(favours)
    said += [f"inconclusive between {', '.join(open_)}"] * bool(open_)
    if accuracy != accuracy:
        said = ["every network was stopped: there is nothing to say"]
    elif not accuracy >= (copying + guessing) / 2:
        said = [
            f"the networks do not read labels off their context yet ({accuracy:.2f}; guessing is {guessing:.2f}, "
            f"copying any label {copying:.2f}): their gaps say nothing"
        ]
    stopped = [
        f"stopped: seed {seed} at iteration {at}, its loss was not finite; left out"
        for seed, at in cell.trained.stopped.items()
    ]
    return ["; ".join(said), *stopped]
