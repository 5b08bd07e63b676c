"""Fenced blocks of a document."""

import re
from pathlib import Path

from project import ROOT

README = ROOT / "README.md"


def blocks(language: str, page: Path = README) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    return [text for name, text in fenced if name == language]
