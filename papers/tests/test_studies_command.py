"""`posbias paper run`, `show`, `export`."""

import json

import pytest
from command import called

from posbias.cli import main
from posbias_papers import herasimchyk2026
from posbias_papers.everything import AT_HAND
from posbias_papers.herasimchyk2026.cells import EFFORTS
from posbias_papers.herasimchyk2026.cells import Effort as Prompts


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_study_that_is_not_there_is_named():
    state = called("paper", "run", "kim2026/fig1", "--dry-run").stdout.splitlines()[1]
    assert state.startswith("8 of 8 cells recorded, 10,000,000 samples, 9 holds")
    for words, message in (
        ("run kim2026/fig99", "study: 'kim2026/fig99' given"),
        ("run kim2026", "study: kim2026 given, one of its studies needed"),
        ("show wu2025/fig17", "wu2025/fig17.json: not made; `posbias paper wu2025 fig17` makes it"),
    ):
        done = called("paper", *words.split())
        assert done.returncode == 2
        assert message in done.stderr


@pytest.mark.slow
def test_a_number_of_prompts_is_enough_for_the_further_texts(capsys, monkeypatch):
    """Figure 4 needs a second text: the first with its tokens shuffled. What is left out is an error."""
    monkeypatch.setitem(EFFORTS, "quick", Prompts("quick", 4, 4, 16))
    monkeypatch.setattr(herasimchyk2026, "MODELS", AT_HAND)
    main(["paper", "run", "herasimchyk2026/fig4", "--effort", "3", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["state"]["made"]
    assert answer["rows"]
    assert "results/herasimchyk2026/fig4.json" in answer["files"]
    for effort in ("3", "quick"):
        with pytest.raises(SystemExit) as ended:
            main(["paper", "run", "herasimchyk2026/fig3", "--effort", effort, "-q"])
        assert ended.value.code == 2
        assert capsys.readouterr().err.startswith("posbias: herasimchyk2026/fig3: left out, every model adds")
