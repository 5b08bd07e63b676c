"""Numbers in memory and in our own files, in the types that people hold them in: read, or refused in one line."""

import json
import os
from functools import partial

import numpy as np
import pytest
import scipy.sparse
import torch
from refused import refused

import posbias
from posbias import Profile
from posbias.core.errors import InputFileError, OutputFileError
from posbias.core.formats import save_json
from posbias.ordering.hits import read_hits
from posbias.profiles.measurements import load_profile

WEIGHTS = np.array([0.5, 0.25, 0.25])
ROWS = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], WEIGHTS])
READ = {
    "bfloat16": lambda values: torch.tensor(values).bfloat16(),
    "float8": lambda values: torch.tensor(values).to(torch.float8_e4m3fn),
    "with a gradient": lambda values: torch.tensor(values, requires_grad=True),
    "sparse": lambda values: torch.tensor(values).to_sparse(),
    "half sparse": lambda values: torch.tensor(values).bfloat16().to_sparse(),
}


@pytest.mark.parametrize("name", READ)
def test_tensors_of_each_type_are_read(name):
    held = READ[name]
    np.testing.assert_array_equal(Profile.from_weights(held(WEIGHTS)).mass, WEIGHTS)
    np.testing.assert_array_equal(Profile.from_samples(held(ROWS)).mass, ROWS.mean(axis=0))
    np.testing.assert_array_equal(posbias.Attention.from_arrays([held(ROWS)]).layers[0][0, 0], ROWS)


def test_a_sparse_matrix_is_read():
    attention = posbias.Attention.from_arrays([scipy.sparse.csr_matrix(ROWS)])
    np.testing.assert_array_equal(attention.layers[0][0, 0], ROWS)


def test_what_would_lose_its_mask_or_holds_no_numbers_is_refused():
    masked = np.ma.masked_array(WEIGHTS, mask=[False, True, False])
    odd = [masked, torch.ones(3, device="meta"), WEIGHTS.astype(complex), ["a", "b"], [[1], [2, 3]], None]
    refused("weights", *(partial(Profile.from_weights, one) for one in odd))
    refused("samples", *(partial(Profile.from_samples, one) for one in odd))
    refused("mass", partial(Profile, masked))
    layers = [
        [np.ma.masked_array(ROWS, mask=ROWS == 0)],
        np.ma.masked_array(ROWS[None], mask=ROWS[None] == 0),
    ]
    refused("attention", *(partial(posbias.Attention.from_arrays, one) for one in layers))


def test_a_layer_without_attention_is_not_blamed_on_the_implementation():
    with pytest.raises(posbias.PosbiasError, match=r"layer 1: .*others have some"):
        posbias.Attention.from_arrays([ROWS, None, ROWS])
    with pytest.raises(posbias.PosbiasError, match="eager"):
        posbias.Attention.from_arrays([None, None])


def test_a_text_for_a_number_in_a_file_of_ours_is_one_line(tmp_path):
    path = tmp_path / "odd.json"
    for key, value in {"lost": "x", "query": "x", "left_out": "x", "profile": "x"}.items():
        path.write_text(json.dumps({"profile": [0.5, 0.5], key: value}))
        with pytest.raises(InputFileError) as caught:
            load_profile(path)
        assert "\n" not in str(caught.value)


def test_a_name_that_is_no_utf8_is_written_and_read(tmp_path):
    name = os.fsdecode(b"caf\xe9")
    assert json.loads(save_json({"name": name}, tmp_path / f"{name}.json").read_text())["name"] == name
    for ending, table in {".csv": "position,accuracy\n0,.9\n1,.5\n", ".json": '{"0": 0.9, "5": 0.5}'}.items():
        (tmp_path / f"{name}{ending}").write_text(table)
        assert posbias.read(tmp_path / f"{name}{ending}").mass.tolist() == [0.9, 0.5]
    (tmp_path / f"{name}.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    assert read_hits(tmp_path / f"{name}.jsonl", "rank").scores.tolist() == [1.0, 0.5]
    text = tmp_path / f"{name}.txt"
    text.write_text("the quick brown fox jumps over the lazy dog " * 30)
    measurement = posbias.measure("tiny-nope", text=text, tokens=8, prompts=1, threads=1)
    with pytest.raises(OutputFileError, match="cannot write"):  # netCDF4 knows no such names
        posbias.save_measurement(measurement, tmp_path / f"{name}.nc")
    again = posbias.load_measurement(posbias.save_measurement(measurement, tmp_path / "kept.nc"))
    np.testing.assert_array_equal(
        posbias.measured_influence(again).mass, posbias.measured_influence(measurement).mass
    )
