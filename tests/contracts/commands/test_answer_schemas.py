"""Every answer with --json says its schema, and is as that schema says."""

import json
import re

from answers import KINDS, SCHEMAS, faults
from jsonschema import Draft202012Validator
from project import ROOT

from posbias.cli import app, main

PAGE = (ROOT / "docs" / "json.md").read_text()


def commands(page=app, path=("posbias",)):
    """Every command that takes --json, in words."""
    if page.default_command is not None and "--json" in {
        name for argument in page.assemble_argument_collection() for name in argument.names
    }:
        yield " ".join(path)
    for name in page:
        if not name.startswith("-"):
            yield from commands(page[name], (*path, name))


def test_the_schemas_are_schemas():
    """The document is JSON Schema, and an answer's name in it is that of its key `schema`."""
    Draft202012Validator.check_schema(SCHEMAS)
    for name, kind in KINDS.items():
        assert SCHEMAS["$defs"][kind.__name__]["properties"]["schema"]["const"] == name


def test_every_command_and_every_schema_stands_in_the_document():
    """docs/json.md has each command that takes --json and each schema."""
    rows = re.findall(r"^\| (`posbias.*) \| `(\S+)` \|", PAGE, re.MULTILINE)
    shown = {
        words for commands, _ in rows for words in re.findall(r"`(posbias[^`]*?)(?: --[^`]*)?`", commands)
    }
    assert {"posbias predict", "posbias models", "posbias study run"} <= {*commands()} <= shown
    assert {*KINDS} == {schema for _, schema in rows}


ASKED = [
    *("presets", "models", "models families", "paper list", "cite bloom-176b"),
    "paper kim2026 fig1 --effort 1000",
    "measure tiny-alibi --tokens 16 --prompts 2 --dry-run",
]


def test_an_answer_begins_with_its_schema(tmp_path, monkeypatch, capsys):
    """What is printed is as the schema says."""
    monkeypatch.chdir(tmp_path)
    for words in ASKED:
        main([*words.split(), "--json"])
        answer = json.loads(capsys.readouterr().out)
        assert next(iter(answer)) == "schema"
        assert not faults(answer), words


def test_a_map_over_two_quantities_fits_its_schema(capsys):
    main(
        ["predict", "bloom-560m", "--tokens", "16", "--vary", "depth=2,4", "--vary", "slopes=1:4:3", "--json"]
    )
    answer = json.loads(capsys.readouterr().out)
    assert not faults(answer)
    assert answer["varied"] == ["depth", "slopes"]
    assert [len(row) for row in answer["summaries"]] == [len(answer["values"][1])] * 2
