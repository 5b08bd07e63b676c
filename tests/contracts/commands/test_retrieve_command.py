"""`posbias retrieve` as a user runs it: files, answers, wrong input, Ctrl-C. A tiny byte-level model answers."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from posbias.cli import main

os.environ["OMP_NUM_THREADS"] = "1"
POSBIAS = Path(sys.executable).with_name("posbias")
SMALL = ["--pairs", "4", "--positions", "3", "--prompts", "3"]
POSITION = [
    "position",
    "depth",
    "token",
    "accuracy",
    "choice",
    "margin",
    "margin_mean",
    "control_margin",
    "lift",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a random Llama of two layers that reads bytes."""
    import tokenizers
    import torch
    import transformers

    torch.set_num_threads(1)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({c: k for k, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        config = transformers.LlamaConfig(
            vocab_size=256, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
            max_position_embeddings=512, initializer_range=0.5,
        )  # fmt: skip
        made = transformers.LlamaForCausalLM(config)
    folder = tmp_path_factory.mktemp("models") / "bytes"
    made.save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *arguments):
    main(["retrieve", *map(str, arguments)])
    return capsys.readouterr()


def test_files_and_json_say_the_same(model, here, capsys):
    answer = json.loads(run(capsys, model, *SMALL, "--json").out)
    folder = Path("results/bytes-keys-4pairs-json-3x3")
    assert answer["file"] == str(folder / "retrieval.nc")
    assert sorted(path.name for path in folder.iterdir()) == [
        "retrieval.nc",
        "retrieval.png",
        "retrieval.svg",
    ]
    assert (folder / "retrieval.png").read_bytes().startswith(b"\x89PNG")
    assert (answer["chance"], answer["candidates"], answer["prompts"]) == (0.25, 4, 3)
    assert [list(place) for place in answer["positions"]] == [POSITION] * 3
    assert set(answer["differences"]["margin"]) == {"first - middle", "last - middle", "first - last"}
    from posbias.profiles.measurements import load_retrieval

    stored = load_retrieval(folder / "retrieval.nc")
    for place in answer["positions"]:
        column = stored.margin.values[:, place["position"]]
        assert place["margin"]["value"] == pytest.approx(column.mean())
        assert place["margin"]["se"] == pytest.approx(column.std(ddof=1) / 3**0.5)
    gap = stored.margin.values[:, 0] - stored.margin.values[:, 1]
    assert answer["differences"]["margin"]["first - middle"]["value"] == pytest.approx(gap.mean())
    assert json.loads(stored.attrs["job"]) == answer["job"]


def test_what_is_there_is_not_asked_again_and_other_jobs_go_beside_it(model, here, capsys):
    first = run(capsys, model, *SMALL, "--out", "o")
    assert "prompt" in first.err
    written = (here / "o" / "retrieval.nc").read_bytes()
    second = run(capsys, model, *SMALL, "--out", "o")
    assert "already there" in second.err
    assert second.out == first.out
    run(capsys, model, *SMALL, "--out", "o", "--seed", 1)
    run(capsys, model, *SMALL, "--out", "o", "--rerun")
    assert (here / "o" / "retrieval.nc").read_bytes() == written
    assert sorted(path.name for path in here.iterdir()) == ["o", "o-2", "o-3"]


def test_a_finished_retrieval_is_told_again_without_its_model(model, here, capsys):
    first = json.loads(run(capsys, model, *SMALL, "--out", "o", "--json").out)
    written = (here / "o" / "retrieval.nc").read_bytes()
    again = run(capsys, "o/retrieval.nc", "--json")
    assert (json.loads(again.out), again.err) == (first, "")
    elsewhere = json.loads(run(capsys, "o/retrieval.nc", "--out", "p", "--json").out)
    assert elsewhere["pictures"] == ["p/retrieval.svg", "p/retrieval.png"]
    assert (here / "p" / "retrieval.svg").read_bytes() == (here / "o" / "retrieval.svg").read_bytes()
    assert (here / "o" / "retrieval.nc").read_bytes() == written
    assert run(capsys, "o/retrieval.nc").out == run(capsys, model, *SMALL, "--out", "o").out
    for words in (["--pairs", "4"], ["--seed", "1"], ["--dtype", "float16"], ["--rerun"]):
        with pytest.raises(SystemExit):
            main(["retrieve", "o/retrieval.nc", *words])
        assert words[0][2:] in capsys.readouterr().err


def test_a_needle_in_a_text_of_ones_own(model, here, capsys):
    words = np.random.default_rng(0).choice(["the", "sea", "was", "calm"], 400)
    (here / "t.txt").write_text(
        " ".join(w + "." * (k % 6 == 5) for k, w in enumerate(words)), encoding="utf-8"
    )
    given = ["--task", "needle", "--length", 260, "--text", "t.txt", "--positions", 3, "--prompts", 2]
    answer = json.loads(run(capsys, model, *given, "--json").out)
    assert answer["candidates"] == 8
    assert answer["file"].startswith("results/bytes-needle-260tokens-plain-3x2-t/")
    assert 240 < answer["tokens"] <= 261


def test_a_measurement_of_the_same_model_is_drawn_beside_the_curve(model, here, capsys):
    from posbias.measurement import load_model
    from posbias.profiles.measurements import save_measurement

    from_report = here / "m.nc"
    save_measurement(_measurement(load_model(str(model)).checksum), from_report)
    alone = json.loads(run(capsys, model, *SMALL, "--out", "a", "--json").out)
    run(capsys, model, *SMALL, "--out", "b", "--measurement", from_report)
    assert alone["pictures"] == ["a/retrieval.svg", "a/retrieval.png"]
    assert _width(here / "b/retrieval.png") == pytest.approx(1.5 * _width(here / "a/retrieval.png"), rel=0.01)
    save_measurement(_measurement("another"), from_report)
    with pytest.raises(SystemExit):
        main(["retrieve", str(model), *SMALL, "--measurement", "m.nc"])
    assert "m.nc" in capsys.readouterr().err


def _measurement(checksum):
    import xarray as xr

    influence = np.random.default_rng(1).lognormal(size=(4, 20))
    attributes = {"posbias_kind": "measurement", "model": "toy", "text": "noise", "checksum": checksum}
    return xr.Dataset({"influence": (("prompt", "position"), influence)}, attrs=attributes)


def _width(path):
    return int.from_bytes(path.read_bytes()[16:20], "big")


BAD = """
--pairs 3 --positions 4 | positions
--positions 2 | positions
--pairs 4 --length 100 | length
--task needle --pairs 4 | pairs
--task nedle | nedle
--wording jsno | 'json'
--prompts 1 | prompts
--prompts 2.5 | --prompts
--out o.nc | out
--measurement none.nc | none.nc
--task needle --text none.txt | none.txt
--text t.txt | text
--length 20 | length
--pairs 60 | 512
--wording chat | chat template
"""


@pytest.mark.parametrize("line", BAD.strip().splitlines())
def test_bad_input_is_one_clear_line_and_leaves_nothing(model, here, capsys, line):
    arguments, named = line.split(" | ")
    with pytest.raises(SystemExit) as exit:
        main(["retrieve", str(model), *arguments.split()])
    said = capsys.readouterr()
    assert exit.value.code == 2
    assert said.out == ""
    assert named in said.err
    assert said.err.splitlines()[-1].startswith("posbias: ")
    assert list(here.iterdir()) == []
