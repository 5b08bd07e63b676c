"""Studies of ours that belong to no paper: found apart from the papers', made, kept; their numbers recomputed."""

import json

import numpy as np
import pytest

from posbias.cli import main
from posbias.core.errors import InvalidValueError
from posbias_papers.citations import cite_all
from posbias_papers.closed_forms.causal_averaging import hops_of, profile_of_averages
from posbias_papers.extensions import STUDIES, reproduce
from posbias_papers.extensions.birth import BirthCell
from posbias_papers.extensions.kinetic import CELLS, KineticCell
from posbias_papers.registry import OWN, find_studies
from posbias_papers.registry import STUDIES as OF_PAPERS


def run(capsys, words: list[str]) -> str:
    """What a command prints."""
    main(words)
    return capsys.readouterr().out


def dense_row(tokens: int, mixing: float, depth: int, decay: float = 0.0) -> np.ndarray:
    """The influence on the last token, from the definition."""
    weights = np.tril(np.tile(np.exp(decay * np.arange(tokens) / tokens), (tokens, 1)))
    layer = (1.0 - mixing) * np.eye(tokens) + mixing * weights / weights.sum(axis=1, keepdims=True)
    return np.linalg.matrix_power(layer, depth)[-1]


def test_they_are_found_by_name_and_stand_apart_from_those_of_the_papers():
    assert [*OWN] == [f"ours/{name}" for name in STUDIES]
    assert find_studies("ours") == [*OWN.values()]
    assert find_studies("ours/birth") == [OWN["ours/birth"]]
    assert not {*OWN} & {study.key for study in find_studies()}
    with pytest.raises(InvalidValueError, match=r"did you mean 'ours/birth'"):
        find_studies("ours/brith")


def test_every_one_says_what_it_is_and_that_no_paper_was_read():
    for study in OWN.values():
        assert study.question.endswith("?")
        assert study.source == "posbias"
        assert study.command == f"posbias paper run {study.key}"
        after_a_paper = any(claim.place.startswith("beyond arXiv") for claim in study.claims)
        assert ("text was not at hand: nothing here is a verdict on it" in study.note({})) == after_a_paper
        assert study.quick.cells == len({*study.cells})


def test_ids_of_claims_are_numbered_by_study_and_all_are_ours():
    ids = [claim.id for study in OWN.values() for claim in study.claims]
    of_papers = [claim.id for study in OF_PAPERS.values() for claim in study.claims]
    assert len({*ids}) == len(ids)
    assert not {*ids} & {*of_papers}
    for study in OWN.values():
        for claim in study.claims:
            assert claim.id.startswith(f"{study.key}/")
            assert claim.provenance == "ours"
            assert claim.scope
            assert claim.effort


@pytest.mark.parametrize(("decay", "multiple"), [(0.5, 0.9), (2.0, 1.5), (5.0, 2.0)])
def test_a_kinetic_cell_tells_what_a_dense_product_has(decay, multiple):
    cell, tokens = KineticCell(decay, multiple), 300
    found, step = cell.run(tokens), cell.strength / 400
    row = dense_row(tokens, step / (1 + step), 400, decay)
    turns = np.flatnonzero(np.diff(np.sign(np.diff(row[:-1])))) + 1
    assert found["turns"] == pytest.approx(turns / tokens)
    closed = profile_of_averages(tokens, hops_of([step / (1 + step)] * 400), decay)
    assert found["off"] == pytest.approx(np.abs(row / closed - 1)[3:-1].max(), rel=1e-6)


def test_a_cell_of_even_attention_tells_what_a_dense_product_has():
    found, row = BirthCell(6, 0.5).run(400), dense_row(400, 0.5, 6)
    assert found["lowest_from_end"] == 1 == 399 - row.argmin()
    assert found["kept"] == pytest.approx(row[-1] - row[-2])
    assert found["middle"] == pytest.approx(row[200] / row[-2])
    assert found["off"] < 0.05


def test_the_kinetic_study_is_made_kept_and_its_claims_hold(tmp_path):
    made = reproduce("kinetic", out=tmp_path, effort=4000)
    assert len(made.new) == len(CELLS)
    told = {claim.id: claim.verdict for claim in made.claims["kinetic"]}
    assert {*told.values()} == {"holds"}
    assert len(told) == 5
    assert {path.suffix for path in made.written} == {".svg", ".png", ".md", ".json"}
    assert not reproduce("kinetic", out=tmp_path, effort=4000).new
    told = json.loads((tmp_path / "kinetic.json").read_text())
    assert told["effort"] == "quick"
    row = next(cell for cell in told["cells"] if (cell["decay"], cell["multiple"]) == (5.0, 2.0))
    assert len(row["turns"]) == 2


def test_they_run_and_are_listed_and_cited_by_their_names(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "3 holds" in run(capsys, ["paper", "run", "ours/birth"])
    shown = run(capsys, ["paper", "list"])
    assert "ours/kinetic" in shown
    assert "kim2026/fig1" in shown
    assert "kim2026" not in run(capsys, ["paper", "list", "ours"])
    expected = ["chowdhury2026"]
    assert [one.source.key for one in cite_all(["ours/birth"])] == expected
