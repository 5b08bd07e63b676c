"""What each study of a run took, in OUT/papers.json: seconds, cells made, cells found.

Work that studies share (training, measuring) is counted to the first of them that needs it, in proportion to the
cells that it was the first to need; what a study does alone (drawing, judging) to itself. A later run keeps the
records of studies that it does not make, and adds to those that it makes anew with the same effort and options.
"""

import datetime
import json
import logging
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posbias.core.errors import DamagedError
from posbias.core.memory import cores
from posbias.core.store import VERSION, save_json, undamaged
from posbias_papers.reproduction import Spent

log = logging.getLogger("posbias.papers")


class Costs:
    """The records of a folder of results, by study."""

    def __init__(self, path: Path, effort: str, options: Mapping[str, Any]):
        self.path, self._effort, self._options = path, effort, dict(options)
        self.records: dict[str, dict[str, Any]] = {}
        try:
            kept = undamaged(json.loads(path.read_text(encoding="utf-8")), path)
            if kept["version"] == VERSION:
                self.records = {str(key): dict(one) for key, one in kept["studies"].items()}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, DamagedError):
            # what is made is on record again
            log.warning("%s: damaged, what studies took is counted anew", path)

    def options_of(self, key: str) -> dict[str, Any] | None:
        """What a study was made with; None if that is not on record."""
        return self.records.get(key, {}).get("options")

    def note(self, key: str, spent: Spent) -> None:
        """Put a study on record; what it took earlier, asked for in the same way, is added."""
        seconds, made, found = spent.seconds, spent.made, spent.found
        earlier = self.records.get(key, {})
        if (earlier.get("effort"), earlier.get("options")) == (self._effort, self._options):
            seconds, before = seconds + float(earlier["seconds"]), int(earlier["cells_made"])
            made, found = made + before, max(0, found - before)
        self.records[key] = {
            "effort": self._effort,
            "seconds": round(seconds, 3),
            "cells_made": made,
            "cells_found": found,
            "options": self._options,
            "finished": datetime.datetime.now().isoformat(timespec="seconds"),
        }

    def save(self) -> None:
        """Write the records and what they add up to. Raises `OutputFileError`."""
        papers = dict.fromkeys(key.partition("/")[0] for key in self.records)
        about = {
            "version": VERSION,
            "machine": f"{cores()} cores, {platform.machine()}",
            "versions": _versions(),
            "runs": [self._total(paper) for paper in papers],
            "studies": self.records,
        }
        save_json(about, self.path)

    def _total(self, paper: str) -> dict[str, Any]:
        own = [one for key, one in self.records.items() if key.startswith(f"{paper}/")]
        return {
            "paper": paper,
            "effort": " and ".join(dict.fromkeys(one["effort"] for one in own)),
            "cells": sum(one["cells_made"] for one in own),
            "minutes": round(sum(one["seconds"] for one in own) / 60, 1),
        }


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version(), "posbias": VERSION}
    for package in ("numpy", "scipy", "numba", "torch", "transformers", "matplotlib"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
