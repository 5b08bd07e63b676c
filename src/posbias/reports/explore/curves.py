"""Measured curves that come with the page: gradient influence on the last token of the bundled models.

`curves.json` is made by `tools/explore_curves.py`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.resources import files
from typing import Any

from posbias.core.plugins import bundled
from posbias.theory.architecture import Architecture
from posbias.theory.configs import load_architecture
from posbias.theory.mixing import known_mixing


def curves() -> list[dict[str, Any]]:
    """Key, title, influence by position and what was measured, of each model."""
    text = files("posbias.reports.explore").joinpath("curves.json").read_text(encoding="utf-8")
    return [_curve(one) for one in json.loads(text)["curves"]]


def _curve(record: Mapping[str, Any]) -> dict[str, Any]:
    model, mass = record["model"], record["mass"]
    about = f"mean over {record['prompts']} prompts of {len(mass)} tokens of {record['text']}"
    return {"key": model, "title": model, "mass": mass, "about": about}


def tiny_architectures() -> Iterator[Architecture]:
    """The measured models that are no presets, each with the λ that was measured."""
    known, folders = known_mixing(), bundled()
    for curve in curves():
        if (model := curve["key"]) in folders:
            architecture = load_architecture(folders[model] / "config.json")
            yield replace(architecture, name=model, mixing=known[model])
