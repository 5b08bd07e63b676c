"""What the three papers contain, in `items.csv` of each: what shows an item and the claims that judge it exist."""

import csv
import importlib
import shlex

import pytest
from project import ROOT

from posbias.cli import app
from posbias_papers import PAPERS
from posbias_papers.registry import STUDIES
from posbias_papers.statements import STATEMENTS

FOLDER = ROOT / "papers/src/posbias_papers"
ITEMS = [
    row
    for paper in PAPERS
    for row in csv.DictReader(
        (ROOT / f"papers/src/posbias_papers/{paper}/items.csv").read_text(encoding="utf-8").splitlines()
    )
]
CLAIMS = {claim.id for study in STUDIES.values() for claim in study.claims} | {
    claim.id for statement in STATEMENTS for claim in statement.claims
}


def test_all_claims_of_items_are_there():
    assert len(ITEMS) == 224
    assert {claim for item in ITEMS for claim in item["claims"].split()} <= CLAIMS


@pytest.mark.parametrize("shown_by", sorted({item["shown_by"] for item in ITEMS} - {""}))
def test_what_shows_an_item_is_a_command_or_a_name(shown_by):
    if not shown_by.startswith("python: "):
        app.parse_args(shlex.split(shown_by)[1:], exit_on_error=False, print_error=False)
        return
    module, _, attribute = shown_by.removeprefix("python: ").rpartition(".")
    try:
        owner = importlib.import_module(module)
    except ModuleNotFoundError:  # an attribute of a class
        parent, _, name = module.rpartition(".")
        owner = getattr(importlib.import_module(parent), name)
    assert hasattr(owner, attribute)
