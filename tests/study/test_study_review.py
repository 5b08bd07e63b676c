"""Damage to a study's manifest, and the error of a claim that has no number."""

import json
import math

import pytest

from posbias.errors import OutputFileError
from posbias.study import Simulate, StatedClaim, judge, run_study, status, study

ONE = study(
    "Is there recency?",
    Simulate(samples=10),
    claims=(StatedClaim("There is", "recency_probability.1", above=0.5),),
)


@pytest.mark.parametrize("content", [b"\xff\xfe{", b"", b"[]"])
def test_a_manifest_that_is_no_text_is_written_anew(tmp_path, content):
    run_study(ONE, tmp_path)
    whole = (tmp_path / "study.json").read_bytes()
    (tmp_path / "study.json").write_bytes(content)
    assert run_study(ONE, tmp_path).computed == 0
    assert (tmp_path / "study.json").read_bytes() == whole
    json.loads(whole)


def test_a_folder_in_the_place_of_the_manifest_is_an_error_of_ours(tmp_path):
    (tmp_path / "study.json").mkdir()
    with pytest.raises(OutputFileError, match=r"study\.json"):
        run_study(ONE, tmp_path)


def test_a_claim_about_what_is_not_finished_has_no_error_either(tmp_path):
    (claim,) = judge(status(ONE, tmp_path))
    told = claim.as_dict()
    assert told["verdict"] == "undecided"
    assert math.isnan(told["number"])
    assert math.isnan(told["se"])
