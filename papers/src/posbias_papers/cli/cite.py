"""`posbias cite`: whom to cite."""

from posbias.cli import options as shared
from posbias.cli.output import answer_with
from posbias.core.errors import InvalidValueError


def cite(*names: str, json: shared.Json = False) -> None:
    """Print the BibTeX of the papers that a preset or a paper's study rests on, each with the reason.

    Parameters
    ----------
    names
        A preset such as bloom-176b, a paper, a paper's study such as wu2025/fig2, or a key of the bibliography.
    """
    from posbias_papers.citations import as_dict, bibliography, cite_all
    from posbias_papers.cli.answers import Cite

    if not names:
        raise InvalidValueError("names: expected a preset, a paper or a study such as wu2025/fig2, got none")
    citations = cite_all(names)
    answer_with(Cite.of(**as_dict(citations)), lambda: [bibliography(citations)], json)
