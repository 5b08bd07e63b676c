"""`posbias paper variants`."""

import json

import pytest
from command import called


def test_variants_give_means_over_networks_and_a_picture(tmp_path):
    picture = tmp_path / "variants.png"
    command = ["paper", "variants", "plain", "rope", "--networks", "4", "--inputs", "20"]
    done = called(*command, "--layers", "2", "--plot", picture, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)["variants"]
    assert [one["name"] for one in answer] == ["plain", "rope"]
    assert answer[0]["networks"] == 4
    assert [entry["layer"] for entry in answer[1]["content"]] == [1, 2]
    assert 0.4 < answer[0]["score"][1]["recency_probability"]["value"] < 0.7
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ropee"], "did you mean 'rope'?"),
        (["heads", "--d", "30"], "heads: 4 given, a divisor of the dimension 30 needed"),
        (["--networks", "0"], "networks: 0 given, an integer ≥ 1 needed"),
        (["--inputs", "1"], "inputs: 1 given, an integer ≥ 2 needed"),
        (["--tokens", "2"], "tokens: 2 given, at least 3 needed"),
    ],
)
def test_wrong_variants_are_one_line(arguments, message):
    done = called("paper", "variants", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
