"""Every numeric option of every command, wrong in turn: exit 2 with one line, before any work and any folder."""

import importlib
import signal
import typing
from pathlib import Path

import pytest
from command import called

from posbias.cli import app, explore, measure, predict, report, retrieve, train
from posbias.cli.simulate import layernorm
from posbias.cli.study import run
from posbias_papers.cli import all as paper_all
from posbias_papers.cli import encodings, herasimchyk2026, kim2026, variants, verify, wu2025

SECONDS = 5.0
"""Of the processor: other work on the machine is not counted."""
COMMANDS = {
    "predict bloom-176b": predict.Options,
    "measure tiny-alibi": measure.Options,
    "retrieve tiny-alibi": retrieve.Options,
    "report tiny-alibi": report.Options,
    "explore": explore.Options,
    "train": train.Experiment,
    "train --effort 1": train.Options,
    "verify": verify.Options,
    "paper variants": variants.Options,
    "simulate layernorm": layernorm.Options,
    "paper all": paper_all.Options,
    "paper wu2025 fig2": wu2025.Options,
    "paper herasimchyk2026 table6": herasimchyk2026.Options,
    "paper kim2026 fig1": kim2026.Options,
    "paper encodings": encodings.Options,
    "paper run kim2026/section3": run.Options,
}
"""Commands and the dataclass of their options."""


def numeric(cls: type) -> list[tuple[str, bool]]:
    """The options that hold a number, as they are typed, and whether it is an integer."""
    found = []
    for name, hint in typing.get_type_hints(cls, include_extras=True).items():
        text = str(hint)
        if any(one in text for one in ("_whole", "_many", "_effort", "float")):
            found.append(("--" + name.replace("_", "-"), "float" not in text))
    return found


CASES = [(command, option, integer) for command, cls in COMMANDS.items() for option, integer in numeric(cls)]


def test_the_options_are_found():
    assert ("train", "--batch", True) in CASES
    assert ("train", "--learning-rate", False) in CASES


@pytest.fixture(scope="module")
def loaded():
    """What commands import when they need it: that takes seconds, and must not be cut short."""
    importlib.import_module("transformers")
    for module in (
        "posbias.measurement.run",
        "posbias.retrieval.local",
        "posbias.training.cells",
        "posbias_papers.everything",
    ):
        importlib.import_module(module)
    for paper in ("wu2025", "herasimchyk2026", "kim2026"):
        importlib.import_module(f"posbias_papers.{paper}")


@pytest.fixture
def soon(loaded):
    """Nothing works for long before it complains."""

    def stop(*_):
        raise TimeoutError(f"longer than {SECONDS} s")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)


def refused(command: str, *words: str) -> str:
    """The one line that a command ends with. Asserts that it is one, with exit 2, and that nothing was written."""
    answer = called(*command.split(), *words)
    assert answer.returncode == 2, answer.stderr
    assert answer.stdout == ""
    assert answer.stderr.startswith("posbias: "), answer.stderr
    assert answer.stderr.count("\n") == 1, answer.stderr
    assert len(answer.stderr) < 500
    assert not [*Path.cwd().iterdir()]
    return answer.stderr


@pytest.mark.parametrize("word", ["nan", "", "words", "1180591620717411303424", "-5"])
@pytest.mark.parametrize(("command", "option", "integer"), CASES)
def test_a_number_that_cannot_be_right_is_refused(
    command, option, integer, word, tmp_path, monkeypatch, soon
):
    if (not integer and word == "1180591620717411303424") or (option == "--query" and word == "-5"):
        pytest.skip("a number may be large, a position count from the end")
    monkeypatch.chdir(tmp_path)
    told = refused(command, f"{option}={word}")
    assert option.strip("-").replace("-", "_") in told.replace("-", "_"), told


REPEATED = {"--columns", "--vary", "--text", "--api", "--system"}
"""Options that may be given several times."""


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_that_is_given_twice_is_refused(command, tmp_path, monkeypatch, soon):
    monkeypatch.chdir(tmp_path)
    words = command.split()
    called = app
    while words and words[0] in called:
        called = called[words.pop(0)]
    tried = 0
    for argument in called.assemble_argument_collection():
        option, (count, _) = argument.name, argument.token_count()
        if argument.parse and count == 1 and option.startswith("--") and option not in REPEATED:
            told = refused(command, f"{option}=1", f"{option}=1")
            assert option in told
            assert "multiple times" in told or "given 2 times" in told, told
            tried += 1
    assert tried > 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["paper", "all", "--models", "nonsense"], "model: 'nonsense' given, needed"),
        (["paper", "all", "--models", "no.nc"], "models: no.nc given, no such file"),
        (["paper", "herasimchyk2026", "table6", "--bins", "0"], "bins: 0 given, an integer ≥ 2"),
        (
            ["measure", "tiny-alibi", "--seed", "1180591620717411303424"],
            "seed: '1180591620717411303424' given, an integer below 2**63 needed",
        ),
        (["train", "--dimension", "1000000000"], "dimension: 1000000000 given; that takes about"),
        (["train", "--classes", "1000000000000"], "classes: 1000000000000 given; that takes about"),
        (["train", "--batch", "1000000000000"], "batch: 1000000000000 given; that takes about"),
        (["train", "--device", "tpu"], "device: 'tpu' given, one of cpu"),
        (["paper", "wu2025", "fig2", "--device", "tpu"], "device: 'tpu' given, one of cpu"),
        (["retrieve", "tiny-alibi", "--device", "tpu"], "device: 'tpu' given, one of cpu"),
        (["report", "tiny-alibi", "--device", "tpu"], "device: 'tpu' given, one of cpu"),
        (
            ["paper", "herasimchyk2026", "fig1", "--lengths", ""],
            "--lengths: '' given, one needed, or several",
        ),
        (["paper", "herasimchyk2026", "fig1", "--lengths", "64,0"], "lengths: 0 given, integers ≥ 3"),
        (["paper", "herasimchyk2026", "fig1", "--models", ""], "--models: '' given, one needed, or several"),
        (["train", "--effort", "banana"], "--effort: 'banana' given, quick, full or an integer"),
        (["paper", "wu2025", "--effort", "banana"], "--effort: 'banana' given, quick, full or an integer"),
        (["paper", "all", "--workers", "0"], "workers: 0 given, an integer ≥ 1"),
        (["paper", "run", "wu2025/fig2", "--workers", "0"], "workers: 0 given, an integer ≥ 1"),
        (["train", "--labels", "1"], "labels: 1 given, at least 2 needed"),
        (["train", "--threads", "1000000000000"], "threads: 1000000000000 given, at most 4,096 needed"),
        (["measure", "tiny-alibi", "--device", "tpu"], "device: 'tpu' given"),
        (["retrieve", "tiny-alibi", "--length", ""], "--length: '' given, an integer needed"),
    ],
)
def test_what_no_machine_can_do_is_refused_before_any_work(words, told, tmp_path, monkeypatch, soon):
    monkeypatch.chdir(tmp_path)
    assert told in refused(words[0], *words[1:])
