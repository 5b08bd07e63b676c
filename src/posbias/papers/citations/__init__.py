"""What a spec or a result rests on, as citations: the file is read, and each method in it names its sources.

    from posbias.papers.citations import cite_all, bibliography

    print(bibliography(cite_all(["model.toml", "results/wu2025/fig2.json"])))

A spec or result is told by what it holds, not by its name (`results`): architectures, training specs and
studies; measurements, trained cells, predictions, simulations, retrieval, tried statements, cells of studies;
figures and tables of the three papers; and folders of these. A name may be a preset's, a paper's, that of a
paper's study (wu2025/fig2) or a key of the bibliography (wu2025workshop).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbias.errors import InputFileError, nearest
from posbias.papers.citations.methods import Uses, of_architecture, of_study
from posbias.papers.citations.results import uses_of_file
from posbias.papers.registry import OURS, OWN, PAPERS, STUDIES, find_studies
from posbias.sources import BIBLIOGRAPHY, Source, cite, software, versions
from posbias.store.header import VERSION


@dataclass(frozen=True)
class Citation:
    """A source, and each reason why it is cited."""

    source: Source
    why: tuple[str, ...]

    @property
    def bibtex(self) -> str:
        """Its entry below a line that says why."""
        return f"% {'; '.join(self.why)}\n{self.source.bibtex}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"key": self.source.key, "why": list(self.why)} | self.source.as_dict()


def cite_all(given: Sequence[str]) -> list[Citation]:
    """The sources of specs, results and names, each once, in the order of the bibliography.

    Raises `InputFileError` for what is missing, unreadable or of no known kind, `InvalidValueError` for a spec
    whose keys or values are wrong.
    """
    why: dict[str, dict[str, None]] = {}
    for one in given:
        for key, reason in _uses(one):
            why.setdefault(key, {})[reason] = None
    return [Citation(source, tuple(why[key])) for key, source in BIBLIOGRAPHY.items() if key in why]


def bibliography(citations: Iterable[Citation]) -> str:
    """The entries as a BibTeX file, posbias itself at the end."""
    own = f"% the software\n{software(VERSION)}"
    return "\n\n".join([*(one.bibtex for one in citations), own])


def as_dict(citations: Iterable[Citation]) -> dict[str, Any]:
    """The same for JSON."""
    own: Mapping[str, str] = {"key": "posbias", "version": VERSION, "bibtex": software(VERSION)}
    return {"sources": [one.as_dict() for one in citations], "software": own}


def _uses(given: str) -> Uses:
    from posbias.theory.presets import PRESETS

    path = Path(given)
    if path.exists():
        yield from uses_of_file(path)
        return
    if given in STUDIES or given in PAPERS or given in OWN or given == OURS:
        for study in find_studies([given]):
            yield from of_study(study)
        for other in versions(given):
            yield other.key, _version(other)
        return
    if given in BIBLIOGRAPHY:
        source = cite(given)
        yield given, _version(source) if source.version_of else "asked for by its key"
        return
    if given in PRESETS:
        from posbias.spec import encode

        yield from of_architecture(encode(PRESETS[given].architecture))
        return
    beside = [str(path.parent / one.name) for one in path.parent.iterdir()] if path.parent.is_dir() else []
    raise InputFileError(
        f"{given}: no such file, and no preset, paper or study of one"
        f"{nearest(given, [*beside, *STUDIES, *PAPERS, *PRESETS, *BIBLIOGRAPHY])}"
    )


def _version(source: Source) -> str:
    return f"another version of {source.version_of}; `posbias paper coverage` has its numbers"
