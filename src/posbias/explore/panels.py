"""What the page shows beside the rollout: LayerNorm's recency by dimension, and gaps of trained networks.

`layernorm.json` is made by `tools/explore_curves.py`; gaps are the recorded networks of `posbias.papers.wu2025`.
"""

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from posbias.papers.wu2025.outcomes import LEARNT
from posbias.papers.wu2025.recorded import FOLDER
from posbias.store import parse_json
from posbias.store.json_files import verified

DIMENSIONS = tuple(round(8 * 2 ** (k / 2)) for k in range(15))
ANISOTROPIES = (0.0, 0.25, 0.5, 0.75, 0.9)
EFFORT = {"iterations": 25_000, "seeds": [0, 1, 2]}
"""The effort that cells of every mask and encoding are on record at."""
INPUTS = "gaussian_mixture"


def panels() -> dict[str, Any]:
    """Both, ready for JSON."""
    text = files("posbias.explore").joinpath("layernorm.json").read_text(encoding="utf-8")
    kept = json.loads(text)
    return {
        "recency": {key: kept[key] for key in ("dimensions", "anisotropies", "plain", "residual")},
        "gaps": {"rows": [*_gaps()], "iterations": EFFORT["iterations"], "learnt": LEARNT},
    }


def _gaps() -> Iterator[dict[str, Any]]:
    """Accuracy gaps of each recorded cell, one of each network that has learnt to copy a label."""
    rows = []
    for path in sorted(FOLDER.glob("*.json")):
        header, content = verified(parse_json(path), path)
        told, network = header.specification, header.specification["network"]
        same = all(told[key] == value for key, value in EFFORT.items())
        if not same or told["task"]["inputs"] != INPUTS or "normaliser" in network:
            continue
        learnt = [value >= LEARNT for value in content["in_context_accuracy"]["values"]]
        gaps = {
            pair: [gap for gap, kept in zip(found["all"]["values"], learnt, strict=True) if kept]
            for pair, found in content["gaps"].items()
        }
        mask, positional = network["mask"], network["positional"]
        seen = f"window {mask['width']}" if "width" in mask else "causal"
        encoding = {"nope": "none"}.get(positional["kind"], positional["kind"])
        rows.append(
            {
                "label": f"{seen}, {encoding}, {network['depth']} layers",
                "order": (seen != "causal", mask.get("width", 0), encoding, network["depth"]),
                "residual": network["residual"],
                "networks": len(learnt),
                "first": gaps["first-middle"],
                "last": [-gap for gap in gaps["middle-last"]],
            }
        )
    for row in sorted(rows, key=lambda one: one["order"]):
        yield {key: value for key, value in row.items() if key != "order"}
