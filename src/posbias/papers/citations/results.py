"""What a file or folder holds, told by its keys, and the sources that stand behind it."""

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from posbias.arguments import shortened
from posbias.errors import DamagedError, InputFileError, PosbiasError, nearest
from posbias.imports import read, recognised
from posbias.input_files import read_mapping, read_text
from posbias.papers.citations import methods
from posbias.papers.citations.methods import Uses, of_study
from posbias.papers.registry import OURS, OWN, PAPERS, STUDIES
from posbias.sources import cite
from posbias.spec import encode
from posbias.store import open_netcdf, open_tensors, undamaged
from posbias.store.header import made_again_by
from posbias.store.json_files import verified
from posbias.store.netcdf_files import checksum_of_0_1, has_header, verified_dataset
from posbias.store.tensor_files import header_keys, verified_tensors

log = logging.getLogger(__name__)
SUFFIXES = (".toml", ".yaml", ".yml", ".json", ".nc", ".safetensors", ".md")
NEEDED = "a spec or a result of posbias needed"
_ARCHITECTURE = ("model_type", "lambda_schedule_config", "attention_config", "depth", "layers", "mixing")
_TRAINING = ("task", "network", "seeds", "iterations", "batch", "learning_rate", "weight_decay")
_TRAINING += ("evaluate_every", "sweep")
_OTHER = ("question", "base", "cells", "claims", "architecture", "statements", "experiment", "job")
_HEADER = {"posbias_kind", "digest", "fingerprint", "specification"}
_COMMANDS = {"measurement": "posbias measure", "retrieval": "posbias retrieve", "cell": "posbias train"}
Table = Mapping[str, Any]
Reader = Callable[[Table, Path], Uses]
"""What a table of keys rests on; the path is for errors."""


def uses_of_file(path: Path) -> Uses:
    """The sources of a file or folder. Raises `InputFileError` for no known kind, and as its reader does."""
    form = recognised(path)
    if form is not None:
        if form.source:
            yield form.source, f"made the results: {form.name}"
        return
    if path.is_dir():
        yield from _of_folder(path)
        return
    match path.suffix.lower():
        case ".nc":
            yield from _of_arrays(path)
        case ".safetensors":
            yield from _of_weights(path)
        case ".md":
            yield from _of_page(path)
        case ".csv" | ".tsv" | ".jsonl" | ".gz":
            read(path)  # which says what columns it lacks
        case ".toml" | ".yaml" | ".yml" | ".json":
            yield from _of_table(_table(path), path)
        case suffix:
            raise InputFileError(
                f"{path}: suffix {shortened(suffix)} given, one of {', '.join(SUFFIXES)} or a folder needed"
                f"{nearest(suffix, SUFFIXES)}"
            )


def _of_folder(folder: Path) -> Uses:
    """A model's folder, a study's, a report's, or one of results: all that is known in it and in its cells."""
    for name in ("config.json", "study.json"):
        if (folder / name).is_file():
            yield from _of_table(_table(folder / name), folder / name)
            return
    report, known = (folder / "report.html").is_file(), False
    places = (folder, folder / "cells", folder / "statements")
    for path in (path for place in places if place.is_dir() for path in sorted(place.iterdir())):
        if path.suffix not in (".nc", ".json") or path.name.startswith("."):
            continue
        reported = report and path.suffix == ".nc" and path.parent == folder
        try:
            uses = list(methods.of_report(*_attributes(path)) if reported else uses_of_file(path))
        except PosbiasError as error:
            if reported:
                raise
            if isinstance(error, DamagedError):
                log.warning("%s; not used", error)
            continue  # beside results may lie what is none
        known = True
        yield from uses
    if not known:
        raise InputFileError(f"{folder}: a folder without results, {NEEDED}")


def _of_arrays(path: Path) -> Uses:
    attributes, variables = _attributes(path)
    match _kind(attributes):
        case "measurement":
            yield from methods.of_measurement(attributes, variables)
        case "retrieval":
            yield from methods.of_retrieval(attributes)
        case "cell":
            told = attributes.get("posbias_specification", attributes.get("experiment"))
            yield from methods.of_experiment(_decoded(path, told))
        case kind:
            raise InputFileError(f"{path}: NetCDF of kind {kind!r}, a measurement, retrieval or cell needed")


def _attributes(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Attributes and names of variables. Raises `InputFileError`, for a digest that does not match too."""
    dataset = open_netcdf(path)
    attributes, variables = dict(dataset.attrs), [str(name) for name in dataset.variables]
    if has_header(dataset):
        with made_again_by(_COMMANDS.get(str(_kind(attributes)), "")):
            verified_dataset(dataset, path)
        return attributes, variables
    checksum = dataset.attrs.pop("content_checksum", None)
    if checksum is not None and checksum != checksum_of_0_1(dataset):
        raise DamagedError(f"{path}: damaged, its content does not match its checksum")
    return attributes, variables


def _kind(attributes: Mapping[str, Any]) -> Any:
    """What a file says that it is, which may be anything."""
    told = attributes.get("posbias_kind")
    return told.tolist() if isinstance(told, np.ndarray) else told


def _table(path: Path) -> dict[str, Any]:
    """The keys of a file, verified where they are those of a result. Raises `InputFileError`."""
    data = read_mapping(path)
    # with one of its keys damaged it still is a result
    if len(_HEADER & data.keys()) >= len(_HEADER) - 1:
        verified(data, path)
        return data
    return undamaged(data, path)


def _of_weights(path: Path) -> Uses:
    """Trained weights, whose header has the experiment."""
    metadata, arrays = open_tensors(path)
    if "posbias" not in metadata:
        raise InputFileError(f"{path}: weights of no training of posbias; {NEEDED}")
    if "experiment" not in header_keys(metadata):  # which those of posbias 0.1 have
        with made_again_by(_COMMANDS["cell"]):
            verified_tensors(metadata, arrays, path)
    told = _decoded(path, metadata["posbias"])
    yield from methods.of_experiment(told.get("specification") or told.get("experiment") or {})


def _decoded(path: Path, text: Any) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (TypeError, ValueError):
        data = None
    if not isinstance(data, dict):
        raise InputFileError(f"{path}: does not say what was trained")
    return data


def _of_page(path: Path) -> Uses:
    """A page of a paper's figure or table: its JSON lies beside it, and its first line names the paper."""
    beside = path.with_suffix(".json")
    if beside.is_file():
        yield from uses_of_file(beside)
        return
    first = read_text(path).partition("\n")[0]
    for paper in PAPERS:
        study = STUDIES.get(f"{paper}/{path.stem}")
        if first.startswith(f"# {cite(paper).short},") and study is not None:
            yield from of_study(study)
            return
    raise InputFileError(f"{path}: no page of a paper's figure or table, {NEEDED}")


# --- tables of keys ----------------------------------------------------------------------------------------


def _of_table(data: Table, path: Path) -> Uses:
    """A table of keys: the kind that its schema names, else the first that fits its keys."""
    answer = str(data.get("schema", "")).partition("/")[0]
    kinds = [uses for _, uses, *answers in _KINDS if answer in answers]
    for uses in kinds or [uses for fits, uses, *_ in _KINDS if fits(data)]:
        try:
            yield from uses(data, path)
        except (AttributeError, TypeError, KeyError) as error:
            # of the right kind by its keys, and damaged within
            reason = " ".join(str(error).split())[:80]
            raise InputFileError(f"{path}: damaged ({reason}), {NEEDED}") from None
        return
    keys = ", ".join(map(str, list(data)[:4])) or "none"
    known = (*_ARCHITECTURE, *_TRAINING, *_OTHER)
    hint = next((close for key in data if (close := nearest(str(key), known, data))), "")
    raise InputFileError(f"{path}: of no known kind (keys {keys}), {NEEDED}{hint}")


def _has(*keys: str) -> Callable[[Table], bool]:
    return lambda data: all(key in data for key in keys)


def _any(keys: tuple[str, ...]) -> Callable[[Table], bool]:
    return lambda data: any(key in data for key in keys)


def _is(kind: str) -> Callable[[Table], bool]:
    return lambda data: data.get("posbias_kind") == kind


def _architecture(data: Table, path: Path) -> Uses:
    from posbias.theory.configs import read_architecture

    if "lambda_schedule_config" in data or "attention_config" in data:
        yield "herasimchyk2026", "the authors' rollout file"
    yield from methods.of_architecture(encode(read_architecture(path).architecture))


def _study(data: Table, path: Path) -> Uses:
    from posbias.study.value import read_study, study_of

    told = data.get("specification", data.get("study"))
    for _, verb in (read_study(path) if told is None else study_of(told)).combinations:
        yield from methods.of_verb(encode(verb))


def _training(data: Table, path: Path) -> Uses:
    from posbias.training import read_experiments

    for experiment in read_experiments(path)[0]:
        yield from methods.of_experiment(encode(experiment))


def _at(uses: Callable[[Any], Uses], key: str) -> Reader:
    """What stands under `key`: of the file, or of what it was computed from (a file of 0.1 has that beside)."""
    return lambda data, path: uses((data if key in data else data["specification"])[key])


def _each(uses: Callable[[Any], Uses], records: str, key: str) -> Reader:
    """What stands under `key` in each of some records."""
    return lambda data, path: (use for record in data[records] for use in uses(record[key]))


def _verified(data: Table, path: Path) -> Uses:
    named = [
        (one.get("source") or one.get("paper"), one.get("statement") or one.get("name") or one.get("key"))
        for one in data["statements"]
    ]
    if any(paper not in PAPERS for paper, _ in named):
        raise InputFileError(f"{path}: statements of no known paper, {NEEDED}")
    yield from methods.of_statements((str(paper), str(name)) for paper, name in named)


def _tried(data: Table, path: Path) -> Uses:
    """A statement's cell, which lies beside many: its paper, for one reason."""
    for source, _ in methods.of_statement(data["specification"]["statement"]):
        yield source, "numbered statements, tried on random instances"


def _paper(data: Table, path: Path) -> Uses:
    """A figure or table of a paper, and the models that were measured for it."""
    name = str(data.get("figure") or data.get("name"))
    named = [data["paper"]] if "paper" in data else [path.parent.name] if path.parent.name in PAPERS else []
    source = [paper for paper in PAPERS if data.get("source") == cite(paper).short]
    papers = [*source, *named, *(["wu2025"] if "figure" in data else []), "herasimchyk2026"]
    own = OWN.get(f"{OURS}/{name}") if data.get("source") == "posbias" else None
    study = own or STUDIES.get(f"{papers[0]}/{name}")
    if study is None:
        raise InputFileError(f"{path}: {name!r} is no study of {papers[0]}, {NEEDED}")
    yield from of_study(study)
    for model in data.get("measured") or []:
        yield from methods.of_model(str(model))


def _claims(data: Table, path: Path) -> Uses:
    for paper in PAPERS:
        count = sum(one.get("paper") == paper for one in data["claims"])
        if count:
            yield paper, f"{count} of its claims judged"


def _of(records: str, key: str) -> Callable[[Table], bool]:
    return lambda data: _listed(data.get(records), key)


def _listed(records: Any, key: str) -> bool:
    """Whether these are records of which all have a key."""
    listed = isinstance(records, list) and bool(records)
    return listed and all(isinstance(record, dict) and key in record for record in records)


_KINDS: tuple[tuple[Callable[[Table], bool], Reader, *tuple[str, ...]], ...] = (
    (_is("study_cell"), _at(methods.of_verb, "spec")),
    (_is("study"), _study),
    (_is("recency_cell"), _at(methods.of_simulation, "model")),
    (_is("statement"), _tried),
    (_has("question", "base"), _study),
    (_of("claims", "paper"), _claims, "paper-claims"),
    (_has("figure", "claims"), _paper),
    (_has("name", "claims"), _paper),
    (_has("statements"), _verified, "verify"),
    (_has("statement", "instance"), _at(methods.of_statement, "statement")),
    (_has("variants"), _each(methods.of_variant, "variants", "variant"), "simulate-variants"),
    (_has("recency_probability", "model"), _at(methods.of_simulation, "model"), "simulate-layernorm"),
    (_has("cells", "published"), _each(methods.of_simulation, "cells", "model"), "paper-kim2026"),
    (
        _has("architecture", "assumptions"),
        _at(methods.of_architecture, "architecture"),
        "predict",
        "predict-varied",
        "predict-map",
        "predict-critical",
    ),
    (_has("predictions"), _each(methods.of_architecture, "predictions", "architecture"), "predict-several"),
    (_has("experiment", "fingerprint"), _at(methods.of_experiment, "experiment"), "train"),
    (_of("cells", "experiment"), _each(methods.of_experiment, "cells", "experiment"), "train-sweep"),
    (_has("job", "positions"), lambda data, path: methods.of_retrieval(data), "retrieve"),
    (_has("influence", "mixing"), lambda data, path: methods.of_measurement(data, ["sink_share"]), "measure"),
    (_has("page", "measurement"), lambda data, path: methods.of_report({}), "report"),
    (_any(_ARCHITECTURE), _architecture),
    (_any(_TRAINING), _training),
)
"""What kinds there are: how one is told by its keys, what it rests on, and the answers (docs/json.md) of it."""
