"""Small studies that tests run."""

import json
from pathlib import Path
from typing import Any

from posbias.study.value import Study, study_of

QUESTION = "Does the recency bias vanish with the dimension?"


def small(**changes: Any) -> Study:
    """Three dimensions and two seeds, 200 samples each."""
    data = {
        "question": QUESTION,
        "seeds": [0, 1],
        "base": {"kind": "simulate", "samples": 200, "model": {"depth": 2}},
        "sweep": {"model.dimension": [16, 64, 256]},
    }
    return study_of(data | changes)


def results(folder: Path) -> dict[str, Any]:
    """Every record in a folder by name, without what may differ between runs: cost, and so the digest."""
    kept = {}
    for path in sorted((folder / "cells").iterdir()):
        data = json.loads(path.read_text())
        kept[path.name] = {key: held for key, held in data.items() if key not in ("cost", "digest")}
    return kept
