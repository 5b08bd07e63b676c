"""Herasimchyk et al. 2026 whole: five models of the paper's families on three corpora, by one command.

The models are random and tiny, of the paper's families and called as on the hub, so that everything that knows
the paper's models by name takes part.
"""

import json

import numpy as np
import pytest
from tiny import WORDS, specimen, word_tokenizer

from posbias.cli import main
from posbias.profiles.measurements import load_measurement
from posbias_papers.herasimchyk2026 import STUDIES
from posbias_papers.herasimchyk2026.configs import CORPORA, TABLE1

PAPER = {
    "bloom": ("bloom-176b", "bloom", 1),
    "bloom-7b1": ("bloom-7b", "bloom", 0),
    "mpt-7b": ("mpt-7b", "mpt", 0),
    "mpt-30b": ("mpt-30b", "mpt", 1),
    "falcon-rw-7b": ("falcon-rw-7b", "falcon", 0),
}
"""Name on the hub → name in the paper, family, which tiny model of it: 176B and 30B are the wider ones."""
TEXTS = ("fineweb.jsonl", "dclm.jsonl", "wiki.jsonl")
PROMPTS, TOKENS = 4, 24


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, (_, family, number) in PAPER.items():
        specimen(family, number).save_pretrained(folder / name)
        word_tokenizer().save_pretrained(folder / name)
    return [str(folder / name) for name in PAPER]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Three texts of eight documents, two of which are shorter than a prompt."""
    folder, random = tmp_path_factory.mktemp("texts"), np.random.default_rng(5)
    for name in TEXTS:
        sizes = [TOKENS + 6] * 6 + [TOKENS // 2] * 2
        documents = [" ".join(random.choice(WORDS, size)) for size in sizes]
        lines = [json.dumps({"text": one}) for one in documents]
        (folder / name).write_text("\n".join(lines), encoding="utf-8")
    return [str(folder / name) for name in TEXTS]


@pytest.fixture(scope="module")
def command(models, corpora):
    words = ["paper", "herasimchyk2026", "all", "--models", ",".join(models), "--corpora", ",".join(corpora)]
    words += [
        "--documents",
        "--dtype",
        "bfloat16",
        "--device-map",
        "auto",
        "--effort",
        str(PROMPTS),
        "--tokens",
    ]
    return [*words, str(TOKENS), "--lengths", f"16,{TOKENS}", "--threads", "1", "--json", "--out"]


@pytest.mark.slow
def test_one_command_makes_all_of_it_and_again_from_what_it_kept(command, tmp_path, capsys):
    main([*command, str(tmp_path)])
    data = json.loads(capsys.readouterr().out)
    assert [*data["tables"]] == [*STUDIES]
    assert data["stand_in"] == ""
    measured = {(cell["model"], cell["corpus"], cell["tokens"]) for cell in data["cells"]}
    assert len(measured) == len(PAPER) * len(TEXTS) * 2
    for path in (tmp_path / "cells").glob("*.nc"):
        attrs = load_measurement(path).attrs
        assert attrs["dtype"] == "bfloat16"
        assert "documents" in attrs
        assert "documents" in path.name
        assert json.loads(attrs["asked"])["packed"] is False
    for table in ("table4", "table5"):
        rows = [
            row for row in data["tables"][table]["rows"] if row["source"] == "measured" and "printed" in row
        ]
        assert {(row["called"], row["text"]) for row in rows} == {(m, c) for m in TABLE1 for c in CORPORA}
    by_row = {one["id"].rpartition("/")[2]: one for one in data["claims"]["table4"]}
    assert {len(by_row[model]["effects"]) for model in TABLE1} == {9}
    before = sorted((tmp_path / "cells").iterdir())
    main([*command, str(tmp_path)])
    again = json.loads(capsys.readouterr().out)
    assert sorted((tmp_path / "cells").iterdir()) == before
    assert again["tables"] == data["tables"]
