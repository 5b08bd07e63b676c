"""Which of the paper's models and texts a name means, which models stand where the paper has its own, and what
would decide its claims then."""

from collections.abc import Iterable, Sequence
from typing import Any

from posbias.theory.configs import PRESETS
from posbias_papers.herasimchyk2026.printed import HUB, PROMPTS, TABLE1
from posbias_papers.study import HERE

TEXTS = {"FineWeb-Edu": "fineweb", "DCLM-Baseline": "dclm", "Wikipedia": "wiki"}
"""What the name of a text has in it that stands for a corpus of the paper."""
SCOPE = f"the paper's ALiBi models ({', '.join(TABLE1)})"
EFFORT = f"{PROMPTS:,} prompts"
OURS: dict[str, Any] = {"provenance": "ours", "scope": HERE, "effort": "32 prompts or more"}
"""About claims on what was measured here, whatever it is."""

ALL = "the paper's models (BLOOM, MPT, Falcon), none of which was measured here"


def model_of(name: str) -> str | None:
    """The model of the paper that is called so: there, by its preset, on the hub; None for any other."""
    own = {
        _plain(called): model
        for model, hub in HUB.items()
        for called in (model, hub.preset, PRESETS[hub.preset].source)
    }
    return own.get(_plain(name))


def corpus_of(text: str) -> str:
    """The paper's corpus that a text is, by its name; "" for none and for no text."""
    return next((corpus for corpus, word in TEXTS.items() if word in text.lower()), "")


def decided_by(study: str, tokens: int, texts: str = "FineWeb-Edu") -> str:
    """What would decide a claim about the paper's models: models, prompts, texts, and the command."""
    sources = ",".join(PRESETS[hub.preset].source for hub in HUB.values())
    return (
        f"decided by {_listed([*TABLE1])}, {EFFORT} of {tokens:,} tokens of {texts}: `posbias paper "
        f"herasimchyk2026 {study} --models {sources} --corpora TEXT --effort full`"
    )


def stand_in(measured: Iterable[str], from_files: Iterable[str] = ()) -> str:
    """'tiny-alibi stands in for mpt-30b and bloom-176b of the paper, not measured here'; empty if none does.

    `measured` are models that were measured, `from_files` those of the paper whose levels come from the authors'
    rollout files.
    """
    measured, given = list(dict.fromkeys(measured)), {*from_files}
    others = [name for name in measured if model_of(name) is None]
    had = {*map(model_of, measured)}
    lacking = [model for model in TABLE1 if model not in had]
    read = [model for model in TABLE1 if model in given]
    parts = []
    if lacking and others:
        verb = "stands" if len(others) == 1 else "stand"
        whose = ALL if len(lacking) == len(TABLE1) else f"{_listed(lacking)} of the paper, not measured here"
        parts.append(f"{_listed(others)} {verb} in for {whose}")
    elif lacking:
        parts.append(f"{_listed(lacking)} of the paper {'were' if len(lacking) > 1 else 'was'} not measured")
    if read:
        parts.append(f"levels of {_listed(read)} are from the authors' rollout files")
    return "; ".join(parts)


def _plain(name: str) -> str:
    """A name without its organisation, in small letters."""
    return name.rpartition("/")[2].lower()


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
