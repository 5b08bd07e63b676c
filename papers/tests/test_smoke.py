"""The papers: figures, tables, claims, statements in both readings, and what to cite."""

from pathlib import Path

import pytest
from answers import answered, folder  # noqa: F401

from posbias_papers.readings import compare_readings

PAPERS = {"wu2025", "herasimchyk2026", "kim2026"}


def test_everything_the_papers_contain_is_listed_with_missing_cells_and_time(answered):
    studies = {row["study"]: row for row in answered("paper", "list")["studies"]}
    assert {study.partition("/")[0] for study in studies} >= PAPERS
    assert all(row["command"] for row in studies.values())
    state = studies["wu2025/fig2"]
    assert state["full"]["cells"] == 18
    assert state["full"]["minutes"] > state["quick"]["minutes"] > 0


def test_a_figure_with_its_numbers_and_verdicts(answered):
    answer = answered("paper", "kim2026", "fig1", "--effort", 2000, "--out", "kept")
    printed = {row["where"]: row for row in answer["published"]}
    assert len(printed) == 6
    assert all(abs(row["deviation"]) < 5 for row in printed.values())
    assert all(Path(file).exists() for file in [*answer["figures"], *answer["files"]])


@pytest.mark.slow
def test_a_table_of_a_small_model(answered):
    answer = answered(
        *("paper", "herasimchyk2026", "table1", "--models", "tiny-alibi", "--effort", 4, "--out", "kept")
    )
    assert answer["claims"]


@pytest.mark.slow
def test_claims_with_numbers_and_verdicts(answered):
    answer = answered("paper", "claims", "--out", "kept")
    of_papers = [row for row in answer["claims"] if row["provenance"] == "paper" and not row["alias_of"]]
    assert of_papers
    assert {claim["verdict"] for claim in answer["claims"]} <= {"holds", "fails", "undecided"}


def test_a_statement_in_both_readings_with_its_counterexample(answered):
    """Theorem 4.5 of Wu et al. 2025 fails as printed and holds as corrected."""
    (found,) = answered("verify", "wu-4.5", "--effort", 4, "--out", "kept")["statements"]
    assert (found["verdict"], found["amended"]) == ("fails", "holds")
    assert found["published_slack"] < -0.1 < -1e-9 < found["slack"]


@pytest.mark.slow
def test_every_statement(answered):
    statements = answered("verify", "--effort", 2, "--out", "kept")["statements"]
    assert len(statements) == 74
    assert {one["source"] for one in statements} == PAPERS


def test_a_printed_number_and_the_right_one():
    """Kim et al. 2026, Eq. 42 at d = 64, α = .5 with residual: 1.032 with the printed γ, 1.060 is right."""
    (reading,) = compare_readings("kim2026/eq-42")
    assert (reading.published.value, reading.corrected.value) == (
        pytest.approx(1.032, abs=1e-3),
        pytest.approx(1.060, abs=6e-3),
    )


def test_what_to_cite(answered):
    answer = answered("cite", "bloom-176b")
    assert "herasimchyk2026" in {source["key"] for source in answer["sources"]}
    assert answer["software"]["bibtex"].startswith("@software")


def test_models_and_presets(answered):
    assert len(answered("presets")["presets"]) >= 20
    assert len(answered("models", "families")["families"]) >= 29
    assert "smollm2-135m" in {model["name"] for model in answered("models")["models"]}


@pytest.mark.slow
def test_variants(answered):
    answer = answered("paper", "variants", "--networks", 3, "--inputs", 20)
    assert len(answer["variants"]) > 3
