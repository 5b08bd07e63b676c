"""The public names of every package and what documents import, each with its signature; the claims; the files."""

import ast
import dataclasses
import importlib
import inspect
import json
import pkgutil
import re
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golden.compare import Difference, moved, read_listed
from golden.replay import run

ROOT = Path(__file__).parents[2]
_IMPORT = re.compile(r"^ *from (posbias[\w.]*) import ([\w, ]+)$", re.MULTILINE)
_PLAIN = {*dir(object), *dir(tuple), *dir(str), *dir(Exception), *dir(dict), *dir(int)}


def public_names() -> dict[str, dict[str, Any]]:
    """Every name of an `__all__` and every name that a document imports: kind, signature, parameters, members."""
    import posbias

    places = {"posbias"} | {
        found.name for found in pkgutil.walk_packages(posbias.__path__, "posbias.") if found.ispkg
    }
    named = {(place, name) for place in places for name in getattr(_module(place), "__all__", ())}
    named |= {(place, name) for place, name in _documented()}
    return {f"{place}.{name}": describe(getattr(_module(place), name)) for place, name in sorted(named)}


def _documented() -> Iterator[tuple[str, str]]:
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").rglob("*.py")]:
        for place, names in _IMPORT.findall(path.read_text()):
            yield from ((place, name.strip()) for name in names.split(","))


def _module(place: str) -> Any:
    return importlib.import_module(place)


def describe(thing: Any) -> dict[str, Any]:
    """What a public thing offers."""
    kind = "class" if inspect.isclass(thing) else "function" if callable(thing) else "value"
    if inspect.ismodule(thing):
        kind = "module"
    told: dict[str, Any] = {"kind": kind}
    if kind in ("class", "function"):
        try:
            signature = inspect.signature(thing)
        except ValueError:
            return told
        told["signature"] = re.sub(r" at 0x\w+", "", str(signature))
        told["parameters"] = [
            [name, one.kind.name, one.default is inspect.Parameter.empty]
            for name, one in signature.parameters.items()
        ]
    if kind == "class":
        told["members"] = sorted(members(thing))
    return told


def members(cls: type) -> set[str]:
    """Fields, methods and properties that are not its base's by birth."""
    fields = {one.name for one in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    annotated = {name for base in cls.__mro__ for name in vars(base).get("__annotations__", ())}
    return {name for name in {*dir(cls), *fields, *annotated} - _PLAIN if not name.startswith("_")}


def name_differences(recorded: dict[str, dict[str, Any]], packages: dict[str, str]) -> list[Difference]:
    """Recorded names that are gone, take other parameters than they took or lack members that they had.

    Where a package is gone, its names are looked for in the one it moved to, and that is a difference.
    """
    found: list[Difference] = []
    for name, before in recorded.items():
        try:
            thing, elsewhere = public(name, packages)
            now = describe(thing)
            difference = Difference("public-names", elsewhere, "a package", packages.get(elsewhere, ""))
            if elsewhere and difference not in found:
                found.append(difference)
        except (ImportError, AttributeError) as error:
            found.append(
                Difference("public-names", name, before.get("signature", before["kind"]), str(error))
            )
            continue
        found += [
            Difference("public-names", f"{name}{where}", was, what)
            for where, was, what in _offers_less(before, now)
        ]
    return found


def public(name: str, packages: dict[str, str]) -> tuple[Any, str]:
    """What a public name is, and the package that it had to be looked for elsewhere than in ("" where it is)."""
    place, _, last = name.rpartition(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return getattr(_module(place), last), ""
        except (ImportError, AttributeError):
            for old, new in sorted(packages.items(), reverse=True):  # the nearest package first
                if f"{place}.".startswith(f"{old}."):
                    return getattr(_module(new + place.removeprefix(old)), last), old
            raise


def _offers_less(before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Where, what was and what is, for everything that the thing no longer takes or has."""
    if before["kind"] != now["kind"] and {before["kind"], now["kind"]} != {"class", "function"}:
        yield "", before["kind"], now["kind"]
    for name in sorted({*before.get("members", ())} - {*now.get("members", before.get("members", ()))}):
        yield f".{name}", "member", "–"
    if "parameters" not in before:
        return
    parameters = now.get("parameters", [])
    any_place, any_name = (
        any(kind == wanted for _, kind, _ in parameters) for wanted in ("VAR_POSITIONAL", "VAR_KEYWORD")
    )
    places = [name for name, kind, _ in parameters if kind.startswith("POSITIONAL")]
    names = {name for name, kind, _ in parameters if kind in ("POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY")}
    known = {name for name, *_ in before["parameters"]}
    positional = [name for name, kind, _ in before["parameters"] if kind.startswith("POSITIONAL")]
    for place, name in enumerate(positional):
        if places[place : place + 1] != [name] and not any_place:
            yield f"({name})", before["signature"], now.get("signature", "–")
    for name, kind, _ in before["parameters"]:
        if kind == "KEYWORD_ONLY" and name not in names and not any_name:
            yield f"({name})", before["signature"], now.get("signature", "–")
    for name, kind, needed in parameters:
        if needed and name not in known and not kind.startswith("VAR"):
            yield f"({name})", "not needed", "needed"
    needless = {name for name, _, needed in before["parameters"] if not needed}
    for name, kind, needed in parameters:
        if needed and name in needless and not kind.startswith("VAR"):
            yield f"({name})", "not needed", "needed"


# ── specification files ──


def specifications() -> list[dict[str, Any]]:
    """Every specification of documents and tests that can be read: where it stands, its text, what it says."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for source, suffix, text in _texts():
        decoded = decode(suffix, text)
        if decoded is not None and (suffix, text) not in found:
            found[suffix, text] = {"source": source, "suffix": suffix, "text": text} | decoded
    return list(found.values())


def _texts() -> Iterator[tuple[str, str, str]]:
    for path in sorted((ROOT / "docs" / "studies").glob("*")):
        yield path.relative_to(ROOT).as_posix(), path.suffix, path.read_text()
    fenced = re.compile(r"^```(toml|yaml|json)\n(.*?)^```", re.MULTILINE | re.DOTALL)
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for kind, text in fenced.findall(path.read_text()):
            yield path.relative_to(ROOT).as_posix(), f".{kind}", text
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > 20:
                for suffix in (".toml", ".json", ".yaml"):
                    yield path.relative_to(ROOT).as_posix(), suffix, node.value


def decode(suffix: str, text: str, folder: Path | None = None) -> dict[str, Any] | None:
    """An architecture, a study or experiments, as plain data; None for a text that is none of them."""
    import tempfile

    data = _mapping(suffix, text)
    if not data:
        return None
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"spec{suffix}"
        path.write_text(text)
        for kind, read in (("study", _study), ("experiments", _experiments), ("architecture", _architecture)):
            if _KEYS[kind] & {*data}:
                from posbias import PosbiasError

                try:
                    return {"kind": kind, "decoded": read(path)}
                except PosbiasError as error:
                    return {"kind": kind, "refused": str(error).replace(str(path), f"spec{suffix}")}
    return None


_KEYS = {
    "study": {"question", "base"},
    "experiments": {"task", "network", "iterations"},
    "architecture": {"layers", "depth", "mixing", "model_type", "num_layers", "architectures"},
}


def _mapping(suffix: str, text: str) -> dict[str, Any] | None:
    if suffix == ".yaml" and ("\n" not in text or "{" in text.split("\n")[0]):
        return None
    try:
        if suffix == ".toml":
            return tomllib.loads(text)
        if suffix == ".json":
            data = json.loads(text)
        else:
            import yaml

            data = yaml.safe_load(text)
    except Exception:
        return None
    return data if isinstance(data, dict) and all(isinstance(key, str) for key in data) else None


def _architecture(path: Path) -> Any:
    from posbias import load_architecture

    return plain(load_architecture(path))


def _study(path: Path) -> Any:
    told = [
        run(["study", *words, str(path), "--json"], path.parent) for words in (["run", "--dry-run"], ["show"])
    ]
    return {"exit": [one.exit for one in told], "answers": [one.stdout or one.stderr for one in told]}


def _experiments(path: Path) -> Any:
    read_experiments, _ = public("posbias.train.read_experiments", moved(read_listed()))
    experiments, swept = read_experiments(path)
    return {"experiments": [plain(one) for one in experiments], "sweep": swept}


def plain(thing: Any) -> Any:
    """Dataclasses, mappings and sequences as JSON can say them; other things by their text."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return {one.name: plain(getattr(thing, one.name)) for one in dataclasses.fields(thing)}
    if isinstance(thing, dict):
        return {str(key): plain(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [plain(value) for value in thing]
    return thing if isinstance(thing, int | float | str | None) else str(thing)
