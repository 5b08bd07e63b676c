"""`posbias paper` where the papers are not installed."""

from typing import Annotated

from cyclopts import Parameter

from posbias.core.errors import MissingPackageError


def paper(*words: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Reproduce the three papers: figures, tables and statements (needs posbias-papers)."""
    raise MissingPackageError(
        "posbias-papers: not installed, `posbias paper` needs it; run, where the sources of posbias are: "
        "pip install ./papers"
    )
