"""The schemas of what commands print with --json."""

import json
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

SCHEMAS = json.loads((files("posbias.cli") / "schemas.json").read_text())
NAMES = [entry["$ref"].rpartition("/")[2] for entry in SCHEMAS["oneOf"]]


def faults(answer: dict[str, Any]) -> list[str]:
    """What of an answer is not as the schema that it names says; a line for each."""
    name = answer["schema"].partition("/")[0]
    validator = Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMAS["$defs"]})
    return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(answer)]
