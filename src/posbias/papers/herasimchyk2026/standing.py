"""Which models stand where the paper has its own, in a sentence for every page, claim and answer."""

from collections.abc import Iterable, Sequence

from posbias.papers.herasimchyk2026.printed import HUB, TABLE1
from posbias.theory.presets import PRESETS

ALL = "the paper's models (BLOOM, MPT, Falcon), none of which was measured here"


def stand_in(measured: Iterable[str], from_files: Iterable[str] = ()) -> str:
    """'tiny-alibi stands in for mpt-30b and bloom-176b of the paper, not measured here'; empty if none does.

    `measured` are models that were measured, `from_files` those of the paper whose levels come from the authors'
    rollout files.
    """
    own = {plain(name): model for model in TABLE1 for name in map(plain, names_of(model))}
    measured, given = list(dict.fromkeys(measured)), {*from_files}
    read = [model for model in TABLE1 if model in given]
    others = [name for name in measured if plain(name) not in own]
    had = {own[plain(name)] for name in measured if plain(name) in own}
    lacking = [model for model in TABLE1 if model not in had]
    parts = []
    if lacking and others:
        verb = "stands" if len(others) == 1 else "stand"
        none = len(lacking) == len(TABLE1)
        whose = ALL if none else f"{_listed(lacking)} of the paper, not measured here"
        parts.append(f"{_listed(others)} {verb} in for {whose}")
    elif lacking:
        parts.append(f"{_listed(lacking)} of the paper {'were' if len(lacking) > 1 else 'was'} not measured")
    if read:
        parts.append(f"levels of {_listed(read)} are from the authors' rollout files")
    return "; ".join(parts)


def names_of(model: str) -> tuple[str, ...]:
    """What a model of the paper is called: there, by its preset, on the hub."""
    hub = HUB[model]
    return model, hub.preset, PRESETS[hub.preset].source


def plain(name: str) -> str:
    """A name without its organisation, in small letters."""
    return name.rpartition("/")[2].lower()


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
