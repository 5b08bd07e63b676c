"""What a preset, a paper, a paper's study or a key of the bibliography rests on, as citations.

from posbias_papers.citations import cite_all, bibliography

print(bibliography(cite_all(["bloom-176b", "wu2025/fig2"])))
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from posbias.core.errors import nearest, wrong
from posbias.core.formats import VERSION
from posbias.core.sources import BIBLIOGRAPHY, Source, cite
from posbias.core.spec import encode
from posbias.theory.configs import PRESETS
from posbias_papers import read_rows
from posbias_papers.registry import PAPERS, STUDIES, find_studies
from posbias_papers.study import STATEMENTS, Study

Use = tuple[str, str]
"""A citation key, and why it is cited."""
Uses = Iterator[Use]
Reasons = Mapping[str, list[str]]
"""Each reason why a source is cited, by its key."""
KINDS: dict[str, Use] = {}
"""Encodings, masks, contents, mixings and norms by their `kind`; others have no source."""
MODELS: dict[str, Use] = {}
"""Models by how their names begin."""
for _row in read_rows(Path(__file__).with_name("cited.csv")):
    {"part": KINDS, "model": MODELS}[_row["of"]][_row["named"]] = _row["source"], _row["why"]


def of_parts(part: Any) -> Uses:
    """Every encoding, mask, content, normaliser, λ and norm in a specification, as deep as they lie."""
    if isinstance(part, Mapping):
        kind = part.get("encoding" if part.get("kind") == "needs_measurement" else "kind")
        yield from (KINDS[name] for name in (kind, part.get("norm")) if name in KINDS)
        if kind == "sliding_window" and part.get("sinks"):
            yield "xiao2024", "first tokens kept in addition to the window"
        part = list(part.values())
    for inner in part if isinstance(part, list | tuple) else ():
        yield from of_parts(inner)


def of_architecture(architecture: Mapping[str, Any]) -> Uses:
    """A prediction from an architecture."""
    yield "abnar2020", "attention rollout"
    if (architecture.get("mixing") or {}).get("kind") not in KINDS:
        yield "herasimchyk2026", "residual-aware rollout"
    if architecture.get("streams"):
        yield "zhu2025", "hyper-connections"
        yield "xie2025", "hyper-connections whose mixing is doubly stochastic"
    yield from of_parts(architecture)
    yield from of_model(str(architecture.get("name", "")))


def of_model(name: str) -> Uses:
    """A language model by its name, folders and organisation left out."""
    plain = name.replace("\\", "/").rpartition("/")[2].lower()
    for begin, use in MODELS.items():
        # gemma-2-9b is of Gemma 2, gemma-2b is not
        if re.match(rf"{re.escape(begin)}(?![a-z0-9])", plain):
            yield use


def of_study(study: Study) -> Uses:
    """A figure, a table or the statements of a paper."""
    yield study.paper, study.title if study.name == STATEMENTS else f"{study.title} ({study.key})"
    paper = PAPERS[study.paper]
    yield from paper.uses if study.cells else ()
    for cell in study.cells:
        specification = encode(paper.specification(cell))
        yield from of_parts(specification)
        if (specification.get("network") or {}).get("residual"):
            yield "herasimchyk2026", "measured residual mixing"
    yield from study.uses


def cite_all(given: Sequence[str]) -> Reasons:
    """The sources of names, in the order of the bibliography. Raises `InvalidValueError` for others."""
    why: dict[str, dict[str, None]] = {}
    for one in given:
        for key, reason in _uses(one):
            why.setdefault(key, {})[reason] = None
    return {key: [*why[key]] for key in BIBLIOGRAPHY if key in why}


def bibliography(why: Reasons) -> str:
    """The entries as a BibTeX file, each below a line that says why, posbias itself at the end."""
    entries = [f"% {'; '.join(reasons)}\n{bibtex(cite(key))}" for key, reasons in why.items()]
    return "\n\n".join([*entries, f"% the software\n{software(VERSION)}"])


def as_dict(why: Reasons) -> dict[str, Any]:
    """The same for JSON."""
    own: Mapping[str, str] = {"key": "posbias", "version": VERSION, "bibtex": software(VERSION)}
    rows = [
        {"key": key, "why": reasons}
        | {name: held for name, held in vars(cite(key)).items() if held != ""}
        | {"bibtex": bibtex(cite(key))}
        for key, reasons in why.items()
    ]
    return {"sources": rows, "software": own}


def _uses(given: str) -> Uses:
    if given in STUDIES or given in PAPERS:
        for study in find_studies([given]):
            yield from of_study(study)
        others = [source for source in BIBLIOGRAPHY.values() if source.version_of == given]
        yield from ((other.key, _version(other)) for other in others)
    elif given in BIBLIOGRAPHY:
        source = cite(given)
        yield given, _version(source) if source.version_of else "asked for by its key"
    elif given in PRESETS:
        yield from of_architecture(encode(PRESETS[given].architecture))
    else:
        close = nearest(given, [*STUDIES, *PAPERS, *PRESETS, *BIBLIOGRAPHY])
        raise wrong("name", "a preset, a paper, a study of one or a citation key", got=f"{given!r}{close}")


def _version(source: Source) -> str:
    return f"another version of {source.version_of}"


# --- BibTeX ----------------------------------------------------------------------------------------------------


def bibtex(source: Source) -> str:
    """The entry for a LaTeX bibliography, in ASCII; braces keep the title's capitals."""
    fields = {
        "author": latex(source.authors),
        "title": f"{{{latex(source.title)}}}",
        "journal": latex(source.journal),
        "booktitle": latex(source.venue),
        "year": str(source.year),
        "eprint": source.arxiv,
        "archivePrefix": "arXiv" if source.arxiv else "",
        "url": source.url,
    }
    kind = "article" if source.journal else "inproceedings" if source.venue else "misc"
    return entry(kind, source.key, fields)


def software(version: str) -> str:
    """The entry of posbias itself, at this version."""
    title = "{posbias: Predict, measure and compare position bias in transformers}"
    return entry(
        "software", "posbias", {"author": "{The posbias authors}", "title": title, "version": version}
    )


def entry(kind: str, key: str, fields: dict[str, str]) -> str:
    """A BibTeX entry of this kind with the fields that are not empty."""
    lines = [f"  {name} = {{{held}}}," for name, held in fields.items() if held]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])


_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0307": ".", "\u0308": '"',
    "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c", "\u0328": "k", "\u0306": "u",
}  # fmt: skip
"""Combining marks and the letter or sign of LaTeX's accent."""
_SIGNS = {
    "ł": r"{\l}", "Ł": r"{\L}", "ø": r"{\o}", "Ø": r"{\O}", "ß": r"{\ss}", "æ": r"{\ae}", "ı": r"{\i}",
    "–": "--", "—": "---", "’": "'", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "$": r"\$",
}  # fmt: skip


def latex(text: str) -> str:
    """Text with accents and special signs as LaTeX spells them: ö is {\\"o}, é is {\\'e}, č is {\\v{c}}.

    What LaTeX has no spelling for here stays as it is. Braces are left alone: they may group a name.
    """
    parts = []
    for sign in unicodedata.normalize("NFC", text):
        letter, *marks = unicodedata.normalize("NFD", sign)
        if len(marks) == 1 and marks[0] in _ACCENTS:
            accent, base = _ACCENTS[marks[0]], {"i": r"\i", "j": r"\j"}.get(letter, letter)
            parts.append(
                f"{{\\{accent}{{{base}}}}}" if accent.isalpha() or base != letter else f"{{\\{accent}{base}}}"
            )
        else:
            parts.append(_SIGNS.get(sign, sign))
    return "".join(parts)
