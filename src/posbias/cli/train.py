"""`posbias train`: the controlled retrieval experiments of Wu et al. 2025."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posbias.arguments import whole
from posbias.cli import options as shared
from posbias.cli.output import answer_with, progress
from posbias.errors import InvalidValueError
from posbias.interruption import budget
from posbias.terminal import table

if TYPE_CHECKING:
    from posbias.training import Cell
    from posbias.training import Experiment as Trained
    from posbias.training.repetition import Repetition

ITERATIONS = {"quick": 2_500, "full": 100_000}
SEQUENCES = {"quick": 2_000, "full": 10_000}
"""Test sequences per position or pair."""


@shared.options
class Experiment:
    """What is trained, unless a file says it.

    Parameters
    ----------
    mask
        causal (the default), full, window=WIDTH or prefix=LENGTH, in tokens; a sequence has 2·items + 1.
    positional
        The positional encoding: none (the default), sinusoidal, rope or decay.
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
        Test sequences for each position or pair, such as 1e4. Default: 2000, or as many as a record has.
    out
        The folder to write to. Default: results/train/NAME.
    """

    sequences: shared.Many | None = None
    device: shared.Device = "cpu"
    threads: shared.TrainingThreads = None
    ray: shared.Ray = None
    gpus_per_cell: shared.GpusPerCell = 0
    out: shared.Out | None = None
    budget: shared.Budget = None
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
        values for any of them: one cell for every combination. Or a cell's record, to make it again and compare.
    """
    _check(spec, experiment, options)
    with budget(options.budget):
        _train(spec, experiment, options)


def _train(spec: Path | None, experiment: Experiment, options: Options) -> None:
    engine = shared.cluster(options.ray, options.threads)
    experiments, swept = _experiments(spec, experiment.given)
    from posbias.training import run_cells
    from posbias.training.records import record_in
    from posbias.training.repetition import repetition
    from posbias.training.shorthand import words_of

    record = None if spec is None else record_in(spec)
    name = spec.stem if spec is not None else words_of(experiments[0])
    folder = options.out or shared.RESULTS / "train" / name
    sequences = options.sequences
    if sequences is None and record is not None:
        sequences = record.cell.evaluation.sequences
    elif sequences is None:
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
        answer = {"cells": [cell.as_dict() for cell in cells]}
        answer_with("train-sweep/1", answer, lambda: _sweep_lines(cells), options.json)
    else:
        repeated = None if record is None else repetition(cells[0], record)
        answer = cells[0].as_dict() | ({} if repeated is None else {"record": repeated.as_dict()})
        answer_with("train/1", answer, lambda: _lines(cells[0], repeated), options.json)


def tell_untested(folder: Path, experiments: "Sequence[Trained]", json: bool) -> None:
    """Answer with what of some experiments is trained and not tested."""
    from posbias.training.jobs import untested

    paths = [path for path in (untested(folder, one) for one in experiments) if path.exists()]
    tested = len(experiments) - len(paths)
    answer = {"folder": str(folder), "untested": [str(path) for path in paths], "tested": tested}
    lines = [
        f"{len(paths)} cells trained, {tested} tested already; without --no-tests the same command tests them"
    ]
    lines += [f"weights: {path}" for path in paths]
    answer_with("train-untested/1", answer, lambda: lines, json)


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
    if options.threads is not None:
        whole("threads", options.threads, 1)


def _experiments(spec: Path | None, given: dict[str, Any]) -> "tuple[list[Trained], bool]":
    """What to train, from a file or from options, and whether it is a sweep."""
    from posbias.training import Experiment, Network, RetrievalTask, read_experiments
    from posbias.training.shorthand import answers_of, encoding_of, mask_of

    if spec is not None:
        return read_experiments(spec)
    words = {"mask": mask_of, "positional": encoding_of}
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


def _lines(cell: "Cell", repeated: "Repetition | None" = None) -> list[str]:
    """One cell: its gaps beside what kernels and theory predict, how well it does, and what that means.

    Of one that was made again also how it differs from its record.
    """
    from posbias.training import agreement

    evaluation, agreed = cell.evaluation, agreement(cell.rollout, cell.evaluation)
    own, theory = agreed["residual" if "residual" in agreed else "attention"], agreed["theory"]
    rows = [
        [
            pair,
            str(gap.over_all.estimate),
            str(gap.over_informative.estimate),
            str(own.predicted[pair]),
            str(theory.predicted[pair]),
        ]
        for pair, gap in evaluation.gaps.items()
    ]
    head = ["gap", "all sequences", "informative", "own kernels say", "theory says"]
    places = [
        f"{value:.2f}" for value in evaluation.as_dict()["accuracy_by_position"]["value"] if value is not None
    ]
    return [
        *table(head, rows),
        "",
        f"in-context accuracy {evaluation.in_context_accuracy.over_members}, "
        f"loss {evaluation.loss.over_members}; by position of the answer {' '.join(places)}",
        words(cell),
        *(f"theory: {assumption}" for assumption in cell.rollout.assumptions),
        *_stopped(cell),
        *(repeated.lines() if repeated else ()),
        f"cell: {cell.path}",
    ]


def _sweep_lines(cells: "Sequence[Cell]") -> list[str]:
    """Many cells: a line for each, on all sequences and on informative ones."""
    from posbias.training.shorthand import common_words

    names, pairs = common_words([cell.experiment for cell in cells]), list(cells[0].evaluation.gaps)
    lines: list[str] = []
    for kind, title in (("all", "gaps on all sequences"), ("informative", "gaps on informative sequences")):
        rows = [
            [
                name,
                *(str(getattr(evaluation.gaps[pair], kind)) for pair in pairs),
                str(evaluation.in_context_accuracy.over_members),
                str(evaluation.loss.over_members),
            ]
            for name, evaluation in zip(names, (cell.evaluation for cell in cells), strict=True)
        ]
        lines += [*table([title, *pairs, "in-context accuracy", "loss"], rows), ""]
    for name, cell in zip(names, cells, strict=True):
        lines += [f"{name}: {line}" for line in (words(cell), *_stopped(cell))]
    return [*lines, *(f"cell: {cell.path}" for cell in cells)]


def words(cell: "Cell") -> str:
    """What the gaps on informative sequences say, for a person; told at 95 % (Student's t over networks)."""
    from posbias.training.averages import sign

    evaluation, task = cell.evaluation, cell.experiment.task
    copying, guessing = task.burstiness / task.items, 1.0 / task.labels
    accuracy = evaluation.in_context_accuracy.over_members.value
    if accuracy != accuracy:
        return "every network was stopped: there is nothing to say"
    if not accuracy >= (copying + guessing) / 2:
        return (
            f"the networks do not read labels off their context yet ({accuracy:.2f}; guessing is {guessing:.2f}, "
            f"copying any label {copying:.2f}): their gaps say nothing"
        )
    signs = {pair: sign(gap.over_informative.estimate) for pair, gap in evaluation.gaps.items()}
    parts = [pair.split("-")[::direction] for pair, direction in signs.items() if direction]
    told = [f"{winner} over {loser}" for winner, loser in parts]
    untold = [" and ".join(pair.split("-")) for pair, direction in signs.items() if not direction]
    said = [f"favours {', '.join(told)}"] if told else []
    said += [f"no preference told between {', nor '.join(untold)}"] if untold else []
    return "; ".join(said)


def _stopped(cell: "Cell") -> list[str]:
    return [
        f"stopped: seed {seed} at iteration {at}, its loss was not finite; left out"
        for seed, at in cell.trained.stopped.items()
    ]
