"""A table or figure as a page: what it shows in words, and the claims about it; written as text and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbias.claims import Judged, count
from posbias.files import write_text
from posbias.sources import cite
from posbias.store import save_json


@dataclass(frozen=True)
class Block:
    """A table in words: its caption, its head and its rows."""

    caption: str
    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Page:
    """What a table or figure says: `title`, `note` on how it came about, tables in words, claims, and data."""

    title: str
    note: str
    blocks: tuple[Block, ...]
    claims: Sequence[Judged]
    data: Mapping[str, Any]

    def write(self, folder: Path, name: str) -> list[Path]:
        """Write NAME.md and NAME.json. Raises `OutputFileError`."""
        about = {"name": name, "title": self.title, "note": self.note, **self.data}
        about["claims"] = [claim.as_dict() for claim in self.claims]
        return [
            write_text(folder / f"{name}.md", self.text()),
            save_json(about, folder / f"{name}.json"),
        ]

    def text(self) -> str:
        """The page as Markdown."""
        lines = [f"# {cite('herasimchyk2026').short}, {self.title}", "", self.note, ""]
        for block in self.blocks:
            lines += [
                f"{block.caption}:",
                "",
                f"| {' | '.join(block.head)} |",
                f"|{'---|' * len(block.head)}",
            ]
            lines += [*(f"| {' | '.join(row)} |" for row in block.rows), ""]
        lines += [", ".join(f"{number} {verdict}" for verdict, number in count(self.claims).items()), ""]
        for claim in self.claims:
            lines += [f"- **{claim.verdict}**: {claim.sentence}", *(f"  - {one}" for one in claim.evidence)]
        return "\n".join(lines) + "\n"
