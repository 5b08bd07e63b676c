"""Retrieve: where in a prompt a model finds a fact."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command import called
from http_servers import prompt_of, serving
from readers import reads_both_ends, says_the_last

import posbias
from posbias.core.errors import InputFileError
from posbias.profiles.measurements import load_retrieval
from posbias.profiles.places import places_in
from posbias.retrieval import Session, retrieval_job, ways_differences
from posbias.retrieval.jobs import KINDS

LISTS = ("--pairs", 6, "--positions", 3, "--wording", "json", "--prompts", 8)


def answer(number, body):
    return reads_both_ends(prompt_of(body))


def accuracies(curve):
    return [place["accuracy"]["value"] for place in curve["positions"]]


def test_keys_and_their_file_which_answers_alone(answered):
    """Given again nothing is computed."""
    answer = answered("retrieve", "tiny-alibi", "--pairs", 4, "--positions", 3, "--prompts", 3, "--out", "o")
    gaps, margin = answer["differences"]["margin"], load_retrieval("o/retrieval.nc").margin.values
    assert (answer["chance"], gaps.keys()) == (0.25, {"first - middle", "last - middle", "first - last"})
    assert gaps["first - middle"]["value"] == pytest.approx(np.mean(margin[:, 0] - margin[:, 1]))
    written = Path("o/retrieval.nc").stat().st_mtime_ns
    assert answered("retrieve", "o/retrieval.nc") == answer
    assert Path("o/retrieval.nc").stat().st_mtime_ns == written
    assert called("retrieve", "o/retrieval.nc", "--seed", 1).returncode == 2
    drawn = Path("o/retrieval.svg").stat().st_mtime_ns
    other = answered(
        *("retrieve", "tiny-alibi", "--pairs", 4, "--positions", 3, "--prompts", 2, "--out", "o")
    )
    assert (other["file"], other["pictures"][0]) == ("o-2/retrieval.nc", "o-2/retrieval.svg")
    assert Path("o/retrieval.svg").stat().st_mtime_ns == drawn


def test_a_needle(answered):
    found = answered(
        *("retrieve", "tiny-alibi", "--task", "needle", "--length", 96, "--positions", 3, "--prompts", 2),
        *("--out", "n"),
    )
    assert [place["depth"] for place in found["positions"]] == [0.0, pytest.approx(0.5, abs=0.1), 1.0]


def test_documents_of_ones_own_behind_an_endpoint(answered, folder):
    trials = [
        {"question": f"q{n}?", "documents": ["one red", "two", "three"], "gold": 0, "answers": ["red"]}
        for n in range(8)
    ]
    Path("own.jsonl").write_text("".join(json.dumps(trial) + "\n" for trial in trials))

    def last_alone(number, body):
        prompt = prompt_of(body)
        return "red" if prompt.find("red") > prompt.find("three") else "no idea"

    with serving(last_alone) as server:
        found = answered("retrieve", "toy", "--endpoint", server.url, "--trials", "own.jsonl", "--out", "d")
    assert accuracies(found["curves"][0]) == [0, 0, 1]


def test_rules_with_a_curve_each_of_what_must_be_and_what_must_not(answered):
    """One kind alone asks nothing anew, and can be compared."""
    rows = [
        {"rule": "End with a dot.", "check": "regex", "value": r"\.\Z"},
        {
            "rule": 'No "{thing}".',
            "check": "contains",
            "value": "{thing}",
            "kind": "must not",
            "request": "Hi",
        },
    ]
    Path("own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = ("--task", "rules", "--pairs", 6, "--positions", 3, "--prompts", 4, "--out", "r")
    own = (*line, "--trials", "own.jsonl")
    with serving(lambda number, body: "Yes.") as server:
        found = [answered("retrieve", "toy", "--endpoint", server.url, *words) for words in (line, own)]
        asked = len(server.asked)
        found.append(answered("retrieve", "toy", "--endpoint", server.url, *own, "--kind", "must not"))
        assert len(server.asked) == asked
    kinds = [curve["job"]["kind"] for one in found for curve in one["curves"]]
    assert kinds == [*KINDS, *KINDS, "must not"]
    assert accuracies(found[1]["curves"][0]) == accuracies(found[1]["curves"][1]) == [1, 1, 1]
    assert found[1]["curves"][1]["controls"]["no gold"]["value"] == 1
    assert answered("compare", "r", "r")


def test_an_endpoint_and_its_kept_answers(answered):
    with serving(answer) as server:
        found = answered("retrieve", "toy", "--endpoint", server.url, *LISTS, "--out", "e")
        asked = len(server.asked)
        again = answered("retrieve", "toy", "--endpoint", server.url, *LISTS, "--out", "e")
        assert len(server.asked) == asked == 48
    assert again["curves"] == found["curves"]
    assert accuracies(found["curves"][0]) == [1, 0, 1]
    assert found["curves"][0]["verdict"] == "U"


def test_an_endpoint_is_asked_without_torch(folder):
    line = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from posbias.cli import main; main(sys.argv[1:])"
    )
    with serving(answer) as server:
        words = ("retrieve", "toy", "--endpoint", server.url, *LISTS, "--json")
        done = subprocess.run(
            [sys.executable, "-c", line, *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
        )
    assert done.returncode == 0, done.stderr
    assert accuracies(json.loads(done.stdout)["curves"][0]) == [1, 0, 1]


def test_prompts_answered_by_somebody_else(answered):
    answered("retrieve", "--write-prompts", "prompts.jsonl", *LISTS)
    rows = [json.loads(line) for line in Path("prompts.jsonl").read_text().splitlines()]
    lines = [json.dumps({"id": row["id"], "answer": reads_both_ends(row["prompt"])}) + "\n" for row in rows]
    Path("answers.jsonl").write_text("".join(lines))
    found = answered("retrieve", "--answers", "answers.jsonl", *LISTS, "--out", "a")
    assert accuracies(found["curves"][0]) == [1, 0, 1]


def test_several_ways_and_sizes(answered):
    with serving(answer) as server:
        found = answered(
            *("retrieve", "toy", "--endpoint", server.url, *LISTS, "--out", "w"),
            *("--api", "chat", "--api", "completion"),
        )
        sizes = answered(
            *("retrieve", "toy", "--endpoint", server.url, "--sizes", "6,8", "--positions", 3),
            *("--wording", "json", "--prompts", 4, "--out", "s"),
        )
    assert len(found["ways"]) == 2
    assert len(sizes["curves"]) == 2


def test_ways_and_sizes_in_python_and_what_a_folder_keeps(folder):
    jobs = tuple(retrieval_job("keys", pairs=pairs, positions=3, prompts=8) for pairs in (6, 8))
    calls = []
    ways = {
        "both ends": lambda prompt: calls.append(prompt) or reads_both_ends(prompt),
        "last": says_the_last,
    }
    curves = Session(jobs).ask_each(ways, "kept")
    assert [*curves] == [(model, model, size) for model in ways for size in (6, 8)]
    assert curves["both ends", "both ends", 6].verdict == "U"
    assert Session(jobs).ask_each(ways, "kept") == curves
    assert len(calls) == 2 * 8 * 6
    data = json.loads(Path("kept/both-ends/retrieval.json").read_text())
    assert places_in(data, "kept") == [curve for key, curve in curves.items() if key.way == "both ends"]
    first, _ = ways_differences(curves)
    assert first[0].numbers["first - middle"].value == pytest.approx(-1)
    with pytest.raises(InputFileError, match="one curve"):
        posbias.read("kept/both-ends")


def test_until_a_width(answered):
    with serving(answer) as server:
        asked = ("retrieve", "toy", "--endpoint", server.url, *LISTS[:-1], 200, "--until", 0.2, "--out", "u")
        found = answered(*asked)
    assert found["curves"][0]["prompts"] < 200


@pytest.mark.slow
@pytest.mark.real_model
def test_smollm2_finds_the_last_key_more_often(answered):
    found = answered(
        "retrieve", "smollm2-135m", "--pairs", 5, "--positions", 3, "--prompts", 8, "--out", "real"
    )
    assert found["overall"]["choice"]["value"] > found["chance"]
