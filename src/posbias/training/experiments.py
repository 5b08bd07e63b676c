"""What is trained: a task, a network, seeds, and how long; and which of them can be trained side by side.

    Experiment(RetrievalTask(answers=(0, 7)), Network(depth=2, residual=True), seeds=(0, 1, 2), iterations=2500)

Every seed is a member: a network with its own initial weights, its own classes and labels and its own batches.

Commands, spec files and the names of files have experiments in words:

    causal, full, window=9, prefix=4             masks
    none, sinusoidal, rope, decay                encodings
    softmax, off_by_one, learned_sink, relu, sigmoid    normalisers of attention
    all, first,last, 0,7                         items that training asks for

A spec file may write such words too, or masks, encodings and normalisers as tables with their `kind`, items as
lists.

A spec file is one experiment or a sweep:

    iterations = 4000
    [network]
    residual = true
    [sweep]
    network.depth = [2, 4]
    network.positional = ["none", "rope", "decay"]

Every key under `[sweep]` is the path of a key of `Experiment` and a list of what to put there; the experiments
are all combinations, the last key running fastest (`posbias.core.spec`).
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from posbias.core import machine, sweeps
from posbias.core.errors import InvalidValueError, PosbiasError, nearest, one_of, shortened, wrong
from posbias.core.files import read_mapping
from posbias.core.spec import Count, Naturals, NonNegative, Positive, decode, encode, fingerprint, value
from posbias.core.sweeps import leaves
from posbias.theory.masks import file_word, mask_of
from posbias.training.attention import NORMALISERS
from posbias.training.network import ENCODINGS, Network, Rotary, Sinusoidal
from posbias.training.task import RetrievalTask

POINTS, SPAN = 40, 100
"""Points of a learning curve, and at how many times the iterations of the first its last one is."""
Precision = Literal["float32", "tf32"]
"""In what numbers matrices are multiplied while training; see `training.loop`."""
SEEDS = 2**63
"""Seeds stay below this: cells name their members by them, as integers of 64 bits."""


@value
class Experiment:
    """One cell: `network` trained on `task` once per seed, with AdamW.

    `iterations` batches of `batch` sequences each. Defaults are those of Wu et al. 2025, Appendix J, but for
    the iterations (100,000 there). Learning curves have a point every `evaluate_every` iterations; None: 40 points
    evenly spaced in the logarithm (`points`). `precision` says in what numbers matrices are multiplied, `draws`
    where random numbers come from (`training.philox`). Raises `InvalidValueError` for a seed given
    twice or of more than 63 bits, a window or prefix longer than the sequence, and an odd dimension with an
    encoding that pairs dimensions.
    """

    task: RetrievalTask = RetrievalTask()
    network: Network = Network()
    seeds: Naturals = (0, 1, 2, 3, 4)
    iterations: Count = 2500
    batch: Count = 128
    learning_rate: Positive = 1e-3
    weight_decay: NonNegative = 1e-6
    evaluate_every: Count | None = None
    precision: Precision = "float32"
    draws: Literal["philox"] = "philox"

    def __post_init__(self):
        if len(set(self.seeds)) < len(self.seeds):
            raise wrong("seeds", "different seeds", list(self.seeds))
        if max(self.seeds) >= SEEDS:
            raise wrong("seeds", "numbers below 2⁶³", max(self.seeds))
        self.network.check(self.task.tokens)
        if isinstance(self.network.positional, Rotary | Sinusoidal) and self.task.dimension % 2:
            what = f"an even number for the {self.network.positional.kind} encoding"
            raise wrong("task.dimension", what, self.task.dimension)

    def check_memory(self) -> None:
        """Raise `InvalidValueError` naming what takes most, if training would need more memory than can be had.

        Weights with gradients and both moments of AdamW, classes and labels of every member, and a batch with
        what is kept of it for the gradient, in float32; a lower bound.
        """
        task, members = self.task, len(self.seeds)
        width, tokens = task.dimension, task.tokens
        weights = (3 * (self.network.depth + 1) * width + task.labels) * width
        kept = self.batch * tokens * (width * (2 + 4 * self.network.depth) + tokens * self.network.depth)
        parts = {
            "dimension": (16 * weights, width),
            "classes": (4 * (task.classes + task.labels) * width + 8 * task.classes, task.classes),
            "items" if task.items > self.batch else "batch": (4 * kept, max(task.items, self.batch)),
        }
        name, (_, given) = max(parts.items(), key=lambda part: part[1][0])
        machine.require(members * sum(bytes for bytes, _ in parts.values()), name, given)

    @property
    def points(self) -> tuple[int, ...]:
        """The iterations after which the networks are looked at: from a hundredth of all to the last one."""
        last, steps = self.iterations, POINTS - 1
        if self.evaluate_every is not None:
            return (*range(self.evaluate_every, last, self.evaluate_every), last)
        return tuple(sorted({max(1, round(last * SPAN ** (-step / steps))) for step in range(POINTS)}))


def compatible(a: Experiment, b: Experiment) -> bool:
    """Whether two experiments can be trained as one ensemble: equal shapes, depth and optimisation.

    Normalisers are equal too. Mask, encoding, residual connections, answers, inputs, number of classes and seeds
    may differ.
    """
    return _shape(a) == _shape(b)


def _shape(one: Experiment) -> tuple[Any, ...]:
    task, network = one.task, one.network
    optimisation = replace(one, task=RetrievalTask(), network=Network(), seeds=(0,))
    return task.items, task.dimension, task.labels, network.depth, network.normaliser, optimisation


def answers_of(word: str, task: RetrievalTask) -> tuple[int, ...] | None:
    """The items (from 0) that words such as "first,last" or "0,7" mean in `task`; "all" is None.

    Raises `InvalidValueError` for an unknown word, an item outside or one given twice.
    """
    if word == "all":
        return None
    items = []
    for part in word.split(","):
        try:
            item = task.places[part.strip()] if part.strip() in task.places else int(part)
        except ValueError:
            what = "all, or first, middle, last or items from 0 with commas between"
            got = f"{shortened(part)}{nearest(part, ('all', *task.places))}"
            raise wrong("answers", what, got=got) from None
        if item in items:
            raise wrong("answers", f"item {item} once", word)
        items.append(item)
    return tuple(items)


def experiment_of(data: Mapping[str, Any]) -> Experiment:
    """The experiment that the keys of a file say, in words or not.

    `task` and `network` may be left out. Raises `InvalidValueError` for a word that is none or a wrong value.
    """
    data = without_words(data)
    task = data["task"]
    if isinstance(task, dict) and isinstance(task.get("answers"), str):
        rest = decode(RetrievalTask, {key: held for key, held in task.items() if key != "answers"})
        data["task"] = task | {"answers": answers_of(task["answers"], rest)}
    return decode(Experiment, data)


def without_words(data: Mapping[str, Any]) -> dict[str, Any]:
    """An experiment's keys with values for the words of mask, encoding and normaliser.

    Answers stay as they are: what their words mean depends on the rest of the task.
    """
    keys = {"task": {}, "network": {}} | dict(data)
    network = keys["network"]
    if isinstance(network, dict):
        keys["network"] = network | {
            key: encode(_meant(key, network[key]))
            for key in ("mask", "positional", "normaliser")
            if isinstance(network.get(key), str)
        }
    return keys


def _meant(key: str, word: str) -> Any:
    """What a word for the network's `key` means. Raises `InvalidValueError` for an unknown one."""
    known: Mapping[str, Any] = ENCODINGS if key == "positional" else NORMALISERS
    return mask_of(word) if key == "mask" else known[one_of(key, word, known)]


def name_of(experiment: Experiment) -> str:
    """What an experiment's files are called: what matters in words, and twelve digits of its fingerprint."""
    return f"{words_of(experiment)}-{fingerprint(experiment)[:12]}"


def words_of(experiment: Experiment) -> str:
    """An experiment in words fit for a file's name: mask, encoding, depth and what is not as usual."""
    task, network = experiment.task, experiment.network
    normaliser = _word(network.normaliser, NORMALISERS)
    words = [file_word(network.mask), _word(network.positional, ENCODINGS), f"depth{network.depth}"]
    words += ["residual"] if network.residual else []
    words += [normaliser] if normaliser != "softmax" else []
    words += ["vocabulary"] if task.inputs == "fixed_vocabulary" else []
    words += ["deviation"] if task.embedding == "deviation" else []
    if task.answers is not None:
        words.append("answers" + "+".join(map(str, task.answers)))
    return "-".join(words)


def common_words(experiments: Sequence[Experiment]) -> list[str]:
    """Each experiment's words and what else tells it from the others, such as `iterations=4000`."""
    rows = [dict(leaves(encode(experiment))) for experiment in experiments]
    keys = list(dict.fromkeys(key for row in rows for key in row))
    said = ("network.", "task.inputs", "task.embedding", "task.answers")
    varied = [
        key for key in keys if not key.startswith(said) and len({repr(row.get(key)) for row in rows}) > 1
    ]
    return [
        " ".join([words_of(experiment), *(f"{key.rpartition('.')[2]}={row.get(key)}" for key in varied)])
        for experiment, row in zip(experiments, rows, strict=True)
    ]


def _word(part: Any, known: Mapping[str, Any]) -> str:
    """The word for an encoding or normaliser; with + where a parameter is another than the word's."""
    alike = [word for word, one in known.items() if one.kind == part.kind]
    return next((word for word in alike if known[word] == part), f"{alike[0]}+")


def read_experiments(path: str | os.PathLike[str]) -> tuple[list[Experiment], bool]:
    """The experiments of a TOML, YAML or JSON file, and whether it is a sweep.

    Raises `InputFileError` for a file that cannot be read, `InvalidValueError` naming file and key for the rest.
    """
    data = read_mapping(path)
    try:
        return expand(data), "sweep" in data
    except PosbiasError as error:
        raise InvalidValueError(f"{path}: {error}") from None


def expand(data: Mapping[str, Any]) -> list[Experiment]:
    """All combinations of a spec's `sweep`, or the one experiment of a spec without.

    Raises `InvalidValueError` as `expand`, for two equal experiments, or values that are wrong.
    """
    base = without_words({key: held for key, held in data.items() if key != "sweep"})
    combinations = sweeps.expand(base, data.get("sweep", {}), sweeps.paths(Experiment))
    experiments = sweeps.build(combinations, experiment_of, "experiment", lambda experiment: experiment)
    return [experiment for _, experiment in experiments]
