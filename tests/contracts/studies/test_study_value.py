"""A study as a value: its cells, what they are called, and what is refused before anything is computed."""

import json
import subprocess
import sys

import pytest
from study_values import QUESTION, small

from posbias.core.errors import InputFileError, InvalidValueError
from posbias.core.spec import encode
from posbias.simulation.model import RecencyModel
from posbias.study import Predict, Simulate, StatedClaim, read_study, study
from posbias.study.value import as_dict, study_of


def test_cells_are_combinations_with_each_seed():
    cells = small().cells()
    assert [(cell.chosen["model.dimension"], cell.seed) for cell in cells] == [
        (dimension, seed) for dimension in (16, 64, 256) for seed in (0, 1)
    ]
    assert [cell.spec.model for cell in cells] == [
        RecencyModel(dimension=dimension, depth=2) for dimension in (16, 64, 256) for _ in (0, 1)
    ]
    assert len({cell.fingerprint for cell in cells}) == len({cell.name for cell in cells}) == 6
    assert cells[0].label == "model.dimension = 16, seed 0"


def test_a_fingerprint_stays_what_it_was():
    """Another one here means that finished studies would be computed again."""
    first = small().cells()[0]
    assert first.fingerprint == "2f7cd0eba31b7c36"
    assert first.name == "simulate-dimension16-seed0"


def test_a_fingerprint_does_not_depend_on_the_order_of_keys_nor_on_defaults_given():
    base = {"model": {"depth": 2, "dimension": 16}, "samples": 200, "kind": "simulate"}
    turned = {"kind": "simulate", "samples": 200, "model": {"dimension": 16, "depth": 2}}
    whole = encode(Simulate(RecencyModel(dimension=16, depth=2), 200))
    found = {
        study_of({"question": QUESTION, "base": one}).cells()[0].fingerprint for one in (base, turned, whole)
    }
    assert found == {small().cells()[0].fingerprint}


def test_a_fingerprint_does_not_depend_on_name_claims_seeds_or_other_cells():
    claims = [{"claim": "yes", "quantity": "recency_probability.0", "above": 0.4}]
    plain = {cell.label: cell.fingerprint for cell in small().cells()}
    for changes in (
        {"name": "other"},
        {"claims": claims},
        {"question": "Another?"},
        {"seeds": [1, 0, 7]},
        {"sweep": {"model.dimension": [256, 16, 17]}},
        {"cores": 3},
        {"sweep": {}, "cells": [{"model": {"dimension": 64}}]},
    ):
        other = {cell.label: cell.fingerprint for cell in small(**changes).cells()}
        common = {*plain} & {*other}
        assert common
        assert all(plain[label] == other[label] for label in common)


def test_a_file_of_any_kind_says_the_same(tmp_path):
    given = small(claims=[{"claim": "yes", "quantity": "recency_probability.0", "above": 0.4}], name="one")
    (tmp_path / "one.json").write_text(json.dumps(as_dict(given)))
    (tmp_path / "one.toml").write_text(
        f"question = '{QUESTION}'\nseeds = [0, 1]\n[base]\nkind = 'simulate'\nsamples = 200\nmodel.depth = 2\n"
        "[sweep]\nmodel.dimension = [16, 64, 256]\n"
        "[[claims]]\nclaim = 'yes'\nquantity = 'recency_probability.0'\nabove = 0.4\n"
    )
    (tmp_path / "one.yaml").write_text(
        f"question: {QUESTION}\nseeds: [0, 1]\nbase: {{kind: simulate, samples: 200, model: {{depth: 2}}}}\n"
        "sweep: {model: {dimension: [16, 64, 256]}}\n"
        "claims: [{claim: 'yes', quantity: recency_probability.0, above: 0.4}]\n"
    )
    read = [read_study(tmp_path / f"one.{suffix}") for suffix in ("json", "toml", "yaml")]
    assert {tuple(cell.fingerprint for cell in one.cells()) for one in read} == {
        tuple(cell.fingerprint for cell in given.cells())
    }
    assert [one.claims for one in read] == [given.claims] * 3
    assert {one.name for one in read} == {"one"}


def test_a_verb_given_as_a_value_gives_way_to_the_sweep():
    made = study(
        QUESTION, Simulate(RecencyModel(depth=2), 200), sweep={"model.dimension": [16, 64, 256]}, seeds=(0, 1)
    )
    assert [cell.fingerprint for cell in made.cells()] == [cell.fingerprint for cell in small().cells()]


def test_cells_may_be_listed_and_of_several_kinds():
    made = study_of(
        {
            "question": QUESTION,
            "base": {},
            "cells": [
                {"kind": "predict", "architecture": {"depth": 2}, "tokens": 8},
                {"kind": "simulate", "samples": 10},
            ],
        }
    )
    assert [cell.spec.kind for cell in made.cells()] == ["predict", "simulate"]
    assert made.axes == ("kind", "architecture.depth", "tokens", "samples")


def test_a_preset_is_kept_as_the_architecture_it_names():
    (cell,) = study_of(
        {"question": QUESTION, "base": {"kind": "predict", "architecture": "bloom-560m"}}
    ).cells()
    assert cell.spec.architecture.depth == 24
    assert cell.mapping["architecture"]["layers"][0]["positional"]["kind"] == "alibi"


def test_only_training_loads_torch():
    program = (
        "import sys\n"
        "from posbias.study import *\n"
        "from posbias.study.value import study_of\n"
        "for base in ({'kind': 'predict', 'architecture': 'bloom-560m'}, {'kind': 'simulate'},\n"
        "             {'kind': 'measure', 'model': 'tiny-alibi'}, {'kind': 'verify', 'statement': 'wu-4.1'}):\n"
        "    study_of({'question': 'q', 'base': base, 'sweep': {}}).cells()\n"
        "heavy = {'torch', 'transformers', 'xarray', 'matplotlib', 'ray'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def claimed(**changes):
    return {"claims": [{"claim": "It is so", "quantity": "recency_probability.1", "above": 0.5} | changes]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"question": " "}, "question"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"seeds": [-1]}, r"seeds\[0\]"),
        ({"sweep": {"model.dimensio": [1]}}, "did you mean 'model.dimension'"),
        ({"sweep": {"kind": ["predict"]}}, "kind"),
        ({"sweep": {"model.dimension": [16, 2]}}, "where model.dimension = 2"),
        ({"sweep": {"model.dimension": [16, 16]}}, "each cell once"),
        ({"cells": [{"samples": 1}]}, "cells"),
        ({"sweep": {}, "base": {"kind": "predict", "architecture": {"depth": 2}}}, "seeds"),
        ({"base": {}}, "kind"),
        ({"base": {"kind": "simulat"}}, "did you mean 'simulate'"),
        ({"cores": 0}, "cores"),
        (claimed(quantity="recency_probabilty.1"), "did you mean 'recency_probability'"),
        (claimed(quantity="recency_probability"), "an index"),
        (claimed(quantity="recency_probability.2"), "from -2 to 1"),
        (claimed(of={"model.dimension": 17}), "one of 16, 64, 256"),
        (claimed(of={"model.dimensio": 16}), "did you mean 'model.dimension'"),
        (claimed(of={"model.dimension": 16}, than={"model.dimension": 16}), "than"),
        (claimed(above=None), "above, below, equals"),
        (claimed(below=0.9), "above and below"),
        (claimed(tolerance=0.1), "tolerance"),
        (claimed(quantiti="x"), "quantiti"),
    ],
)
def test_a_study_that_cannot_be_right_is_refused_in_one_line(changes, words):
    with pytest.raises(InvalidValueError, match=words) as caught:
        small(**changes)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_right_is_named(tmp_path):
    (tmp_path / "one.toml").write_text("question = 'q'\n[base]\nkind = 'simulat'\n")
    with pytest.raises(InvalidValueError, match=r"one\.toml: kind"):
        read_study(tmp_path / "one.toml")
    with pytest.raises(InputFileError, match=r"did you mean 'one\.toml'"):
        read_study(tmp_path / "none.toml")


def test_claims_select_by_what_was_chosen_and_by_what_the_spec_holds():
    made = small(sweep={"model.dimension": [16, 64], "model.residual": [True, False]})

    def pairs(**keys):
        return StatedClaim("c", "recency_probability.1", above=0.5, **keys).pairs(made.combinations)

    assert pairs() == [(number, None) for number in range(4)]
    assert pairs(of={"model.dimension": 64}) == [(2, None), (3, None)]
    assert pairs(of={"model": {"dimension": 64, "residual": False}}) == [(3, None)]
    assert pairs(of={"model.depth": 2, "samples": 200.0}) == [(number, None) for number in range(4)]
    assert pairs(of={"model.dimension": 16}, than={"model.dimension": 64}) == [(0, 2), (1, 3)]
    assert pairs(of={"model.residual": True}, than={"model.residual": False}) == [(0, 1), (2, 3)]
    assert pairs(than={"model.dimension": 64, "model.residual": True}) == [(0, 2), (1, 2), (3, 2)]
    with pytest.raises(InvalidValueError, match="one of True, False"):
        pairs(of={"model.residual": 1})


def test_a_prediction_may_sweep_patterns_files_and_presets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bloom", "n_layer": 3, "n_head": 2}')
    (tmp_path / "own.toml").write_text('depth = 2\n[mixing]\nkind = "constant"\nvalue = 0.2')
    base = {"question": QUESTION, "base": {"kind": "predict", "tokens": 8}}
    made = study_of({**base, "sweep": {"architecture": ["config.json", "own.toml", "bloom-560m"]}})
    assert [cell.spec.architecture.depth for cell in made.cells()] == [3, 2, 24]
    near = {"mask": {"kind": "sliding_window", "width": 2}}
    base["base"]["architecture"] = {"depth": 5}
    made = study_of({**base, "sweep": {"architecture.layers": [[near], [near, {}], [near, near, {}]]}})
    windows = [
        [layer.mask.kind == near["mask"]["kind"] for layer in cell.spec.architecture.stack]
        for cell in made.cells()
    ]
    assert windows == [[True] * 5, [True, False, True, False, True], [True, True, False, True, True]]


def test_a_prediction_may_vary_the_layers_of_a_pattern():
    made = study_of(
        {
            "question": QUESTION,
            "base": {"kind": "predict", "tokens": 8, "architecture": {
                "depth": 4, "layers": [{"mask": {"kind": "sliding_window"}}, {"mask": {"kind": "sliding_window"}}],
            }},
            "sweep": {"architecture.layers.mask.width": [2, 3]},
        }
    )  # fmt: skip
    assert [[layer.mask.width for layer in cell.spec.architecture.layers] for cell in made.cells()] == [
        [2, 2],
        [3, 3],
    ]
    assert isinstance(made.cells()[0].spec, Predict)
