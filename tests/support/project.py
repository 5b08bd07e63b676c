"""The project's folder and the blocks of its pages; rollout files of a paper where a checkout is next to it;
packages in a folder as an installer leaves them.
"""

import functools
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from posbias.core.packages import GROUP

ROOT = Path(__file__).parents[2]
ROLLOUT_FILES = ROOT.parent / "shared" / "data" / "published-rollout-configs"
needs_rollout_files = pytest.mark.skipif(
    not ROLLOUT_FILES.is_dir(), reason="the authors' rollout files are not here"
)


README = ROOT / "README.md"


@functools.cache
def _cases() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "tests" / "cases.yaml").read_text(encoding="utf-8"))


def cases(name: str) -> Any:
    """The rows of a part of `tests/cases.yaml`."""
    return _cases()[name]


def blocks(language: str, page: Path = README) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    return [text for name, text in fenced if name == language]


def install(site: Path, name: str, module: str, entries: dict[str, str], version: str = "0.3") -> None:
    """A package of one module whose entry points bring families (`entries`: family → name in the module)."""
    stem = name.replace("-", "_")
    (site / f"{stem}.py").write_text(module, encoding="utf-8")
    info = site / f"{stem}-{version}.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    lines = [f"{family} = {stem}:{what}" for family, what in entries.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines]) + "\n", encoding="utf-8")
