"""Our own studies: cells against dense products, what is on record against the documents, made and kept."""

import numpy as np
import pytest

from posbias.cli import main
from posbias.core.errors import InvalidValueError
from posbias_papers.closed_forms.causal_averaging import hops_of, profile_of_averages
from posbias_papers.extensions import EXTENSIONS
from posbias_papers.extensions.averages import EvenCell, KineticCell
from posbias_papers.extensions.extension import Cell, Extension


def dense_row(tokens: int, mixing: float, depth: int, decay: float = 0.0) -> np.ndarray:
    """The influence on the last token, from the definition."""
    weights = np.tril(np.tile(np.exp(decay * np.arange(tokens) / tokens), (tokens, 1)))
    layer = (1.0 - mixing) * np.eye(tokens) + mixing * weights / weights.sum(axis=1, keepdims=True)
    return np.linalg.matrix_power(layer, depth)[-1]


@pytest.mark.parametrize(("decay", "multiple"), [(0.5, 0.9), (2.0, 1.5), (5.0, 2.0)])
def test_a_kinetic_cell_finds_what_a_dense_product_has(decay, multiple):
    cell = KineticCell(decay, multiple, tokens=300)
    found, step = cell.compute(), cell.strength / 400
    row = dense_row(300, step / (1 + step), 400, decay)
    turns = np.flatnonzero(np.diff(np.sign(np.diff(row[:-1])))) + 1
    assert found["turns"] == pytest.approx(turns / 300)
    closed = profile_of_averages(300, hops_of([step / (1 + step)] * 400), decay)
    assert found["off"] == pytest.approx(np.abs(row / closed - 1)[3:-1].max(), rel=1e-6)


def test_a_cell_of_even_attention_finds_what_a_dense_product_has():
    found, row = EvenCell(6, 0.5, tokens=400).compute(), dense_row(400, 0.5, 6)
    assert found["lowest_from_end"] == 1 == 399 - row.argmin()
    assert found["kept"] == pytest.approx(row[-1] - row[-2])
    assert found["steps_up"] == 0
    assert found["off"] < 0.05


def test_cells_are_kept_and_computed_again_when_asked_to(tmp_path):
    cells = (KineticCell(0.5, 0.9, tokens=200), EvenCell(2, 0.5, tokens=200))
    small = Extension("small", "Why?", "docs/none.md", cells, lambda results: ())

    def kept() -> int:
        return len([*(tmp_path / "cells").iterdir()])

    assert [path.name for path in small.make(tmp_path)] == ["small.md"]
    assert kept() == 2
    small.make(tmp_path)
    assert kept() == 2
    small.make(tmp_path, rerun=True)
    assert kept() == 4


def test_a_cell_that_fails_is_named(tmp_path):
    class Broken(Cell):
        kind = "broken_cell"

        def compute(self, on_event=None):
            raise InvalidValueError("depth: expected an integer >= 1, got 0")

    broken = Extension("broken", "Why?", "docs/none.md", (Broken(),), lambda results: ())
    with pytest.raises(InvalidValueError, match="depth: expected"):
        broken.make(tmp_path)
    assert not (tmp_path / "broken.md").exists()


@pytest.mark.parametrize("name", ["designed", "ordering", "predictors", "behaviour"])
def test_what_takes_long_is_on_record(name):
    extension = EXTENSIONS[name]
    assert [*extension.recorded()] == [*extension.cells]


def test_orders_found_on_some_trials_gain_on_others():
    gains, *_ = EXTENSIONS["ordering"].tables(EXTENSIONS["ordering"].recorded())
    rows = [row for row in gains.rows if row[0] == "smollm2-135m"]
    assert len(rows) == 12
    assert all(float(row[-1].split(" ")[0].replace("−", "-")) > 0 for row in rows if row[2] == "best first")


def test_the_command_lists_them_writes_one_and_names_the_nearest(tmp_path, capsys):
    main(["paper", "extensions"])
    listed = capsys.readouterr().out
    assert all(name in listed for name in EXTENSIONS)
    main(["paper", "extensions", "behaviour", "--out", str(tmp_path)])
    assert (tmp_path / "extensions" / "behaviour.md").exists()
    with pytest.raises(SystemExit):
        main(["paper", "extensions", "behavior"])
    assert "did you mean 'behaviour'" in capsys.readouterr().err
