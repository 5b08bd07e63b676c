"""The page as one file: markup, style, script and data, with a policy that lets nothing be fetched or sent."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np

from posbias import __version__
from posbias.core.errors import InvalidValueError
from posbias.core.packages import bundled
from posbias.core.spec import encode
from posbias.reports.explore.kernel import MOST_TOKENS, exported, longest
from posbias.reports.explore.menu import WORDS, menu, mixing_state, packed, scalings, state_of, turns
from posbias.theory.architecture import Architecture
from posbias.theory.configs import PRESETS, load_architecture
from posbias.theory.mixing import known_mixing
from posbias.theory.positional import RoPE

SCRIPTS = "kernel choices chart controls trajectory views export page"
"""The parts of the script, each a constant that later ones use."""


def page(
    architecture: Architecture | None = None,
    tokens: int | None = None,
    name: str = "",
    curves: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The page as HTML, beginning from an architecture at a length, if one is given.

    `name` is what it is called; `curves` were measured, each a key, a title and `mass` by position, and are drawn
    beneath.

    Raises `InvalidValueError` for an architecture that kernel.js has no form for.
    """
    data = page_data(architecture, tokens, name, curves)
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    script = '"use strict";\n' + "".join(_text(f"{part}.js") for part in SCRIPTS.split())
    style = _text("page.css")
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
    policy += "base-uri 'none'; form-action 'none'"
    parts = {"policy": policy, "version": __version__, "style": style, "script": script}
    parts["data"] = text.replace("<", "\\u003c")
    return re.sub(rf"\{{({'|'.join(parts)})\}}", lambda found: parts[found[1]], _text("page.html"))


def page_data(
    architecture: Architecture | None, tokens: int | None, name: str, curves: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What the page computes with: the menu, the state to begin from, presets and measured curves."""
    choices: dict[str, Any] = menu() | {"own": None}
    most = MOST_TOKENS if architecture is None else longest(architecture)
    if tokens is not None and not 8 <= tokens <= most:
        raise InvalidValueError(f"tokens: expected 8 to {most:,} for this page, got {tokens:,}")
    begin = WORDS["begin"] | {"shown": [curve["key"] for curve in curves], "tokens": tokens or 256}
    usual = {"key": "", "title": "24 layers with ALiBi", "reason": None, "state": dict(begin)}
    presets: list[dict[str, Any]] = [usual]
    if architecture is not None:
        title = name or architecture.name or "the file"
        state, reason = state_of(architecture, choices)
        if reason:
            choices["own"] = own(architecture, title, reason)
            # its layers are swept as they are: depth and λ can still be moved
            state = {"own": True, "depth": architecture.depth} | mixing_state(architecture, choices)
        begin |= state
        presets.insert(0, {"key": "own", "title": title, "reason": None, "state": dict(begin)})
    known = known_curves()
    shown = {curve["key"]: len(curve["mass"]) for curve in known}
    models = [*tiny_architectures(), *(one.architecture for one in PRESETS.values())]
    presets += [_preset(one, choices, shown.get(one.name)) for one in models]
    return {"menu": choices, "begin": begin, "presets": presets, "curves": [*curves, *known]}


def own(architecture: Architecture, title: str, reason: str) -> dict[str, Any]:
    """The layers of an architecture that the controls do not have: for kernel.js, and as a file holds them."""
    tokens = longest(architecture)
    if any(layer.at(2) != layer.at(tokens) for layer in architecture.layers):
        raise InvalidValueError("architecture: expected logits of any length alike, got others")
    layers = exported(architecture, tokens)["layers"]
    ropes = [layer.positional for layer in architecture.layers if isinstance(layer.positional, RoPE)]
    lengths = {getattr(rope.scaling, "trained", None) for rope in ropes}
    options = scalings(lengths.pop() if len(lengths) == 1 else None)
    for layer, made in zip(architecture.layers, layers, strict=True):
        if isinstance(layer.positional, RoPE):
            made["turns"] = turns(layer.positional)
            options = options if "plain" in made["turns"] else options[:1]
        for head in made["heads"]:
            if head["waves"]:
                head |= {"table": None, "after": None}
            lists = {name: np.array(head[name]) for name in ("table", "after", "factors") if head[name]}
            head |= {"after": None} | {name: packed(numbers) for name, numbers in lists.items()}
    inexact = [layer.positional for layer in architecture.layers if not layer.positional.exact]
    left_out = sorted({str(getattr(one, "caveat", one.kind)) for one in inexact})
    return {
        "title": title,
        "reason": reason,
        "layers": layers,
        "scalings": options if ropes else options[:1],
        "values": [encode(layer) for layer in architecture.layers],
        "heads": max(layer.heads for layer in architecture.layers),
        "assumptions": [*architecture.remarks, *left_out],
        "exact": not left_out,
    }


def known_curves() -> list[dict[str, Any]]:
    """Measured curves that come with the page (`tools/explore_curves.py`): influence on the last token."""
    return [
        {"key": one["model"], "title": one["model"], "mass": one["mass"]}
        | {"about": f"mean over {one['prompts']} prompts of {len(one['mass'])} tokens of {one['text']}"}
        for one in json.loads(_text("curves.json"))["curves"]
    ]


def tiny_architectures() -> Iterator[Architecture]:
    """The measured models that are no presets, each with the λ that was measured."""
    known, folders = known_mixing(), bundled()
    for model in (curve["key"] for curve in known_curves()):
        if model in folders:
            architecture = load_architecture(folders[model] / "config.json")
            yield replace(architecture, name=model, mixing=known[model])


def _preset(architecture: Architecture, choices: Mapping[str, Any], measured: int | None) -> dict[str, Any]:
    """An architecture with a name; `measured` is the length at which its curve was measured, if it was."""
    state, reason = state_of(architecture, choices)
    name, shown = architecture.name, {}
    if measured:
        shown = {"shown": [name], "tokens": measured}
    about = {"key": name, "title": f"{name} (measured)" if measured else name}
    about |= {"remarks": [*architecture.remarks], "reason": reason or None}
    return about if reason else about | {"state": state | shown}


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _text(name: str) -> str:
    return files("posbias.reports.explore").joinpath(name).read_text(encoding="utf-8")
