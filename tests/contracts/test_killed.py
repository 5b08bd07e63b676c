"""Commands that are killed at any moment, interrupted, or given several times at once leave what a whole run does.

Those that are killed are forked with everything imported: the moments, drawn from the length of a whole run, lie
in their work.
"""

import json
import random
import shlex
import signal

import pytest
from command import SMALL_TASK, started
from piecework import wait_for
from struck import PRELOADED, Command, is_leftover

from posbias.core.formats import open_netcdf

FILES = {
    "study.toml": 'question = "Does it grow?"\nseeds = [0, 1]\nsweep = {"model.depth" = [1, 2, 3]}\n'
    'base = {kind = "simulate", samples = 20_000, model = {tokens = 6, dimension = 16}}\n',
    "cells.toml": "seeds = [0, 1]\niterations = 400\nbatch = 16\n[sweep]\nnetwork.depth = [1, 2]"
    + SMALL_TASK,
    "items.jsonl": "".join(f'{{"options": ["{n} is", "{n} is not", "{n} may be"]}}\n' for n in range(6)),
    "base.toml": 'depth = 8\n[mixing]\nkind = "constant"\nvalue = 0.3\n[[layers]]\npositional = {kind = "alibi"}',
}
LINES = {
    "study": "study run study.toml --workers 1 --out kept",
    "measure": "measure tiny-alibi --tokens 32 --prompts 8 --out kept/m.nc",
    "train": "train cells.toml --sequences 50 --threads 1 --out kept",
    "paper": "paper kim2026 fig1 --effort 3000 --threads 1 --out kept",
    "choose": "choose tiny-alibi --items items.jsonl --out kept",
    "retrieve": "retrieve tiny-alibi --pairs 4 --positions 3 --prompts 4 --out kept",
    "design": "design base.toml --tokens 4096 --evaluations 300 --threads 1 --vary depth=4:24 --vary "
    "window=16:1024:12 --vary full_period=1:6 --vary mixing=0.1:0.6:6 --out kept",
}
TIMES = {"cost", "digest", "seconds", "cpu_seconds", "finished", "created", "posbias_cost", "posbias_digest"}
TIMES |= {"processes", "minutes", "computed", "training_cost"}

pytestmark = pytest.mark.waits


def untimed(held):
    if isinstance(held, dict):
        return {key: untimed(inner) for key, inner in held.items() if key not in TIMES}
    return [untimed(inner) for inner in held] if isinstance(held, list) else str(held)


def content(path):
    """What a file holds, every bit of it, but for times and the digest over them."""
    if path.suffix == ".nc":
        data = open_netcdf(path)
        arrays = {
            name: (held.dims, held.dtype, held.values.tobytes()) for name, held in data.variables.items()
        }
        return arrays, untimed(data.attrs)
    return untimed(json.loads(path.read_text())) if path.suffix == ".json" else path.read_bytes()


def kept(folder):
    """Everything that a command leaves, hidden files too."""
    found = sorted(path for path in (folder / "kept").rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): content(path) for path in found}


@pytest.fixture
def folders(tmp_path):
    """Two folders with the files that the commands read."""
    made = [tmp_path / word for word in ("whole", "ended")]
    for folder in made:
        folder.mkdir()
        for name, text in FILES.items():
            (folder / name).write_text(text)
    return made


@pytest.mark.parametrize(
    ("name", "kills"), [*(pytest.param(name, 8, marks=pytest.mark.slow) for name in LINES), ("study", 2)]
)
def test_a_command_killed_at_any_moment_goes_on_and_leaves_the_same(name, kills, folders):
    """SIGKILL at random moments and while it writes a file."""
    modules = PRELOADED if kills > 2 else ["posbias.cli.study"]
    whole, killed = (Command(LINES[name], folder, modules) for folder in folders)
    whole.whole()
    whole.forget()
    span = whole.whole()  # the first one also compiled and filled caches
    expected, chance = kept(folders[0]), random.Random(5)
    struck = cut = ended = 0
    while struck < kills:
        if killed.strike(chance.uniform(0, span), writing=struck % 2 == 1):
            struck += 1
            cut += bool(killed.begun())
        else:
            ended += 1
            assert ended <= 4 * kills + 9, "it ends before it is struck"
            assert kept(folders[1]) == expected
            killed.forget()
            span *= 0.9  # next to other work the run measured may have been slow
    killed.whole()
    assert kept(folders[1]) == expected
    assert cut or kills == 2


def quietly(line, folder):
    return started(*shlex.split(line), "--json", "-q", cwd=folder)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("study", signal.SIGINT),
        pytest.param("study", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("train", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("design", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_command_ends_with_130_and_the_same_command_goes_on(name, number, folders):
    """Ctrl-C, or what `timeout` sends, once something is kept."""
    long = folders[1] / "study.toml"
    long.write_text(long.read_text().replace("20_000", "300_000"))
    process, kept_in = quietly(LINES[name], folders[1]), folders[1] / "kept"
    wait_for(lambda: not all(map(is_leftover, kept_in.rglob("*.*"))) or process.poll() is not None)
    process.send_signal(number)
    out, errors = process.communicate(timeout=300)
    assert (process.returncode, out) == (130, ""), errors
    assert errors.splitlines()[-1].startswith("posbias: interrupted: ")
    long.write_text(FILES["study.toml"])
    for folder in folders:
        process = quietly(LINES[name], folder)
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    left, whole = map(kept, reversed(folders))
    assert {key: left[key] for key in whole} == whole


@pytest.mark.slow
@pytest.mark.parametrize("name", ["study", "train", "measure"])
def test_equal_commands_at_once_leave_one_whole_result(name, folders):
    """All end well, each with the same answer."""
    processes = [quietly(LINES[name], folders[1]) for _ in range(3)]
    answers = [process.communicate(timeout=600) for process in processes]
    assert [process.returncode for process in processes] == [0] * 3, answers
    first, *others = (untimed(json.loads(out)) for out, _ in answers)
    assert all(other == first for other in others)
    process = quietly(LINES[name], folders[0])
    process.communicate(timeout=600)
    assert kept(folders[1]) == kept(folders[0])
