"""Experiments in words: what commands and spec files write, and what files are called.

    causal, full, window=9, prefix=4             masks
    none, sinusoidal, rope, decay                encodings
    softmax, off_by_one, learned_sink, relu, sigmoid    normalisers of attention
    all, first,last, 0,7                         items that training asks for

A spec file may write such words too, or masks, encodings and normalisers as tables with their `kind`, items as
lists.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from posbias.core.errors import InvalidValueError, nearest, one_of, shortened
from posbias.core.spec import decode, encode, fingerprint, leaves
from posbias.theory.masks import file_word, mask_of
from posbias.training.network import ENCODINGS, Encoding
from posbias.training.normalisers import NORMALISERS, Normaliser
from posbias.training.specification import Experiment
from posbias.training.task import RetrievalTask


def encoding_of(word: str) -> Encoding:
    """The encoding that a word means. Raises `InvalidValueError` for an unknown word, naming the nearest."""
    return ENCODINGS[one_of("positional", word, ENCODINGS)]


def normaliser_of(word: str) -> Normaliser:
    """The normaliser that a word means. Raises `InvalidValueError` for an unknown word, naming the nearest."""
    return NORMALISERS[one_of("normaliser", word, NORMALISERS)]


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
            raise InvalidValueError(
                f"answers: {shortened(part)} given, "
                "all, or first, middle, last or items from 0 with commas between needed"
                f"{nearest(part, ('all', *task.places))}"
            ) from None
        if item in items:
            raise InvalidValueError(f"answers: {shortened(word)} given, item {item} once needed")
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
            key: encode(read(network[key]))
            for key, read in (("mask", mask_of), ("positional", encoding_of), ("normaliser", normaliser_of))
            if isinstance(network.get(key), str)
        }
    return keys


def name_of(experiment: Experiment) -> str:
    """What an experiment's files are called: what matters in words, and twelve digits of its fingerprint."""
    return f"{words_of(experiment)}-{fingerprint(experiment)[:12]}"


def words_of(experiment: Experiment) -> str:
    """An experiment in words fit for a file's name: mask, encoding, depth and what is not as usual."""
    task, network = experiment.task, experiment.network
    words = [file_word(network.mask), _encoding_word(network.positional), f"depth{network.depth}"]
    words += ["residual"] if network.residual else []
    words += _normaliser_words(network.normaliser)
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


def _encoding_word(positional: Encoding) -> str:
    for word, known in ENCODINGS.items():
        if known.kind == positional.kind:
            return word if known == positional else word + "+"
    return positional.kind


def _normaliser_words(normaliser: Normaliser) -> list[str]:
    """The name of what is no softmax."""
    for word, known in NORMALISERS.items():
        if known == normaliser:
            return [] if word == "softmax" else [word]
    return [f"{normaliser.kind}+"]
