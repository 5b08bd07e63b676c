"""A command killed again and again, at random moments and while it writes, leaves what an uninterrupted one does.

The processes are forked with everything imported: the moments, drawn from the length of a whole run, lie in
its work.
"""

import json
import random

import pytest
from struck import Command

from posbias.core.formats import open_netcdf, open_tensors

STUDY = """
question = "Does recency grow with depth?"
seeds = [0, 1]
base = {kind = "simulate", samples = 20_000, model = {tokens = 6, dimension = 16}}
sweep = {"model.depth" = [1, 2, 3]}
"""
TRAINING = (
    "--items 4 --dimension 8 --classes 16 --labels 4 --burstiness 2 --batch 16 --networks 2 --effort 600"
)
LINES = {
    "study": "study run study.toml --workers 1 --out kept",
    "measure": "measure tiny-alibi --tokens 32 --prompts 8 --out kept/m.nc",
    "train": f"train {TRAINING} --sequences 50 --threads 1 --out kept",
    "paper": "paper kim2026 fig1 --effort 3000 --threads 1 --out kept",
}
KILLS = 24
TIMES = {"cost", "digest", "seconds", "cpu_seconds", "finished", "created", "posbias_cost", "posbias_digest"}
TIMES |= {"processes", "minutes"}

pytestmark = [pytest.mark.waits, pytest.mark.slow]


def content(path):
    """What a file holds, every bit of it, but for times and the digest over them."""
    if path.suffix == ".nc":
        data = open_netcdf(path)
        arrays = {
            name: (held.dims, held.dtype, held.values.tobytes()) for name, held in data.variables.items()
        }
        return arrays, untimed(data.attrs)
    if path.suffix == ".safetensors":
        metadata, arrays = open_tensors(path)
        metadata_of = {name: untimed(json.loads(held)) for name, held in metadata.items()}
        return metadata_of, {
            name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()
        }
    return untimed(json.loads(path.read_text())) if path.suffix == ".json" else path.read_bytes()


def untimed(held):
    if isinstance(held, dict):
        return {key: untimed(inner) for key, inner in held.items() if key not in TIMES}
    return [untimed(inner) for inner in held] if isinstance(held, list) else str(held)


def kept(folder):
    """Everything that a command leaves, hidden files too."""
    found = sorted(path for path in (folder / "kept").rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): content(path) for path in found}


@pytest.mark.parametrize("name", LINES)
def test_a_command_killed_at_any_moment_goes_on_and_leaves_the_same(name, tmp_path, record_property):
    folders = [tmp_path / word for word in ("whole", "killed")]
    for folder in folders:
        folder.mkdir()
        (folder / "study.toml").write_text(STUDY)
    whole, killed = (Command(LINES[name], folder) for folder in folders)
    whole.whole()
    whole.forget()
    span = length = whole.whole()  # the first one also compiled and filled caches
    expected, chance = kept(folders[0]), random.Random(5)
    struck = cut = ended = 0
    while struck < KILLS:
        if killed.strike(chance.uniform(0, span), writing=struck % 2 == 1):
            struck += 1
            cut += bool(killed.begun())
        else:
            ended += 1
            assert ended <= 4 * KILLS + 9, "it ends before it is struck"
            assert kept(folders[1]) == expected
            killed.forget()
            span *= (
                0.5 if ended > 4 * KILLS else 0.9
            )  # next to other work the run measured may have been slow
    killed.whole()
    assert kept(folders[1]) == expected
    print(f"{name}: {length:.2f} s, {struck} kills, {cut} of them in a file, {ended} runs ended between them")
    record_property("kills", {"struck": struck, "in a file": cut, "ended": ended})
    assert cut
