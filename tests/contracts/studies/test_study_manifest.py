"""A damaged manifest of a study is written anew; what cannot be one is an error of ours."""

import json

import pytest

from posbias.core.errors import OutputFileError
from posbias.study import Simulate, StatedClaim, run_study, study

RECENCY = study(
    "Is there recency?",
    Simulate(samples=10),
    claims=(StatedClaim("There is", "recency_probability.1", above=0.5),),
)


@pytest.mark.parametrize("content", [b"\xff\xfe{", b"", b"[]"])
def test_a_manifest_that_is_no_text_is_written_anew(tmp_path, content):
    run_study(RECENCY, tmp_path)
    whole = (tmp_path / "study.json").read_bytes()
    (tmp_path / "study.json").write_bytes(content)
    assert run_study(RECENCY, tmp_path).computed == 0
    assert (tmp_path / "study.json").read_bytes() == whole
    json.loads(whole)


def test_a_folder_in_the_place_of_the_manifest_is_an_error_of_ours(tmp_path):
    (tmp_path / "study.json").mkdir()
    with pytest.raises(OutputFileError, match=r"study\.json"):
        run_study(RECENCY, tmp_path)
