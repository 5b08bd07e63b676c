"""Experiments in words: what commands and spec files write, and what files are called.

    causal, full, window=9, prefix=4             masks
    none, sinusoidal, rope, decay                encodings
    all, first,last, 0,7                         items that training asks for

A spec file may write such words too, or masks and encodings as tables with their `kind`, items as lists.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from posbias.errors import InvalidValueError, nearest
from posbias.spec import decode, encode, fingerprint
from posbias.theory.masks import Causal, Full, Mask, Prefix, SlidingWindow
from posbias.train.network import ENCODINGS, Encoding
from posbias.train.task import RetrievalTask

if TYPE_CHECKING:
    from posbias.train.specification import Experiment

MASKS = ("causal", "full", "window=WIDTH", "prefix=LENGTH")
"""The masks as commands write them."""
_PLACES = ("first", "middle", "last")


def mask_of(word: str) -> Mask:
    """The mask that a word means. Raises `InvalidValueError` for an unknown word, naming the nearest."""
    name, equals, size = word.partition("=")
    if name in ("causal", "full") and not equals:
        return Causal() if name == "causal" else Full()
    if name not in ("window", "prefix") or not equals:
        known = [one.partition("=")[0] for one in MASKS]
        hint = "" if name in known else nearest(name, known)
        raise InvalidValueError(f"mask: {word!r} given, one of {', '.join(MASKS)} needed{hint}")
    try:
        number = int(size)
    except ValueError:
        raise InvalidValueError(f"mask: {word!r} given, an integer after {name}= needed") from None
    if number < 1:
        raise InvalidValueError(f"mask: {word!r} given, at least {name}=1 needed")
    return SlidingWindow(number) if name == "window" else Prefix(number)


def encoding_of(word: str) -> Encoding:
    """The encoding that a word means. Raises `InvalidValueError` for an unknown word, naming the nearest."""
    if word not in ENCODINGS:
        raise InvalidValueError(
            f"positional: {word!r} given, one of {', '.join(ENCODINGS)} needed{nearest(word, ENCODINGS)}"
        )
    return ENCODINGS[word]


def answers_of(word: str, task: RetrievalTask) -> tuple[int, ...] | None:
    """The items (from 0) that words such as "first,last" or "0,7" mean in `task`; "all" is None.

    Raises `InvalidValueError` for an unknown word, an item outside or one given twice.
    """
    if word == "all":
        return None
    items = []
    for one in word.split(","):
        try:
            item = task.places[one.strip()] if one.strip() in _PLACES else int(one)
        except ValueError:
            raise InvalidValueError(
                f"answers: {one!r} given, all, or first, middle, last or items from 0 with commas between needed"
                f"{nearest(one, ('all', *_PLACES))}"
            ) from None
        if item in items:
            raise InvalidValueError(f"answers: {word!r} given, item {item} once needed")
        items.append(item)
    return tuple(items)


def plain(data: dict[str, Any]) -> dict[str, Any]:
    """An experiment's keys from a file, with words for mask, encoding and answers made what they stand for.

    `task` and `network` may be left out. Raises `InvalidValueError` for a word that is none.
    """
    made = without_words(data)
    task = made["task"]
    if isinstance(task, dict) and isinstance(task.get("answers"), str):
        rest = decode(RetrievalTask, {key: given for key, given in task.items() if key != "answers"})
        made["task"] = task | {"answers": answers_of(task["answers"], rest)}
    return made


def without_words(data: dict[str, Any]) -> dict[str, Any]:
    """As `plain`, but answers stay as they are: what their words mean depends on the rest of the task."""
    made = {"task": {}, "network": {}} | data
    network = made["network"]
    if isinstance(network, dict):
        made["network"] = network | {
            key: encode(read(network[key]))
            for key, read in (("mask", mask_of), ("positional", encoding_of))
            if isinstance(network.get(key), str)
        }
    return made


def name_of(experiment: "Experiment") -> str:
    """What an experiment's files are called: what matters in words, and eight digits of its fingerprint."""
    return f"{words_of(experiment)}-{fingerprint(experiment)[:8]}"


def words_of(experiment: "Experiment") -> str:
    """An experiment in words fit for a file's name: mask, encoding, depth and what is not as usual."""
    task, network = experiment.task, experiment.network
    words = [_mask_word(network.mask), _encoding_word(network.positional), f"depth{network.depth}"]
    words += ["residual"] if network.residual else []
    words += ["vocabulary"] if task.inputs == "fixed_vocabulary" else []
    words += ["deviation"] if task.embedding == "deviation" else []
    if task.answers is not None:
        words.append("answers" + "+".join(map(str, task.answers)))
    return "-".join(words)


def common_words(experiments: Sequence["Experiment"]) -> list[str]:
    """Each experiment's words and what else tells it from the others, such as `iterations=4000`."""
    rows = [_flat(encode(experiment)) for experiment in experiments]
    keys = list(dict.fromkeys(key for row in rows for key in row))
    said = ("network.", "task.inputs", "task.embedding", "task.answers")
    varied = [
        key for key in keys if not key.startswith(said) and len({repr(row.get(key)) for row in rows}) > 1
    ]
    return [
        " ".join([words_of(one), *(f"{key.rpartition('.')[2]}={row.get(key)}" for key in varied)])
        for one, row in zip(experiments, rows, strict=True)
    ]


def _flat(data: dict[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, given in data.items():
        found |= _flat(given, f"{before}{key}.") if isinstance(given, dict) else {before + key: given}
    return found


def _mask_word(mask: Mask) -> str:
    match mask:
        case SlidingWindow():
            return f"window{mask.width}" + (f"+sinks{mask.sinks}" if mask.sinks else "")
        case Prefix():
            return f"prefix{mask.length}"
        case _:
            return mask.kind


def _encoding_word(positional: Encoding) -> str:
    for word, known in ENCODINGS.items():
        if known.kind == positional.kind:
            return word if known == positional else word + "+"
    return positional.kind
