"""What a kind of file made elsewhere is: how it is recognised, and what reads it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from posbias.imports.records import Record
from posbias.profile import Profile


@dataclass(frozen=True)
class Format:
    """Files of one writer: `needs` lists columns that all have, each as the names that it may have.

    `read` makes a profile of the records of a file or folder and, where it has several, of the one model named;
    its attribute "read_as" says in a line what the file was taken for. `source` is the key of what to cite.
    """

    name: str
    needs: tuple[tuple[str, ...], ...]
    read: Callable[[Sequence[Record], Path, str | None], Profile]
    source: str = ""

    def missing(self, columns: Sequence[str]) -> list[str]:
        """What of `needs` a file with these columns lacks, by the first name of each."""
        return [names[0] for names in self.needs if not any(name in columns for name in names)]
