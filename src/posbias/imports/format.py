"""What a kind of file made elsewhere is: how it is recognised, and what reads it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from posbias.core.tables import Table, bare_name
from posbias.imports.columns import Choice
from posbias.profile import Profile

Curves = dict[float | None, Profile]
"""A profile for each context length; under None where lengths are not known, or all are taken together."""


@dataclass(frozen=True)
class Format:
    """Files of one writer: `needs` lists columns that all have, each as the names that it may have.

    `read` makes profiles of the rows of a file or folder; their attribute "read_as" says in a line what they were
    taken for. `source` is the key of what to cite. With `apart` each file of a folder is a task of its own.
    """

    name: str
    needs: tuple[Sequence[str], ...]
    read: Callable[[Table, Path, Choice], Curves]
    source: str = ""
    apart: bool = False

    def missing(self, columns: Iterable[str]) -> list[str]:
        """What of `needs` a file with these columns lacks, by the first name of each."""
        found = {bare_name(column) for column in columns}
        return [names[0] for names in self.needs if found.isdisjoint(map(bare_name, names))]
