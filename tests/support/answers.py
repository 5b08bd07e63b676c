"""Answers of commands, asked for in an empty folder and held against their schemas; results field by field."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest
from command import called
from jsonschema import Draft202012Validator

from posbias.core.answers import json_schema
from posbias.core.formats import dump_json
from posbias.reports.answers import library_answers
from posbias_papers.cli.answers import paper_answers

KINDS = {one.schema_name: one for one in (*library_answers(), *paper_answers())}
SCHEMAS = json_schema(KINDS.values())


def faults(answer: dict[str, Any]) -> list[str]:
    """What of an answer is not as the schema that it names says; a line for each."""
    name = KINDS[answer["schema"]].__name__
    validator = Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMAS["$defs"]})
    return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(answer)]


def as_json(part: Any) -> dict[str, Any]:
    """An answer, or part of one, as a program reads it."""
    return json.loads(dump_json(part.model_dump(mode="json")))


def plain(result: Any) -> Any:
    """All fields of a result, for comparing two; null for NaN."""
    match result:
        case _ if dataclasses.is_dataclass(result):
            return {one.name: plain(getattr(result, one.name)) for one in dataclasses.fields(result)}
        case Mapping():
            return {key: plain(held) for key, held in result.items()}
        case list() | tuple():
            return [plain(held) for held in result]
        case _ if hasattr(result, "tolist"):
            return plain(result.tolist())
        case float() if result != result:
            return None
    return result


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Each test works in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def answered(folder):
    """`answered("predict", "bloom-560m")`: what the command prints with --json, which is as its schema says."""

    def run(*words):
        done = called(*words, "--json", cwd=folder)
        assert done.returncode in (0, 4), done.stderr
        answer = json.loads(done.stdout)
        assert not faults(answer)
        return answer

    return run
