"""A whole file of every kind, and what it is to have one read that was changed."""

import shutil
import tempfile
from pathlib import Path

from command import called
from counted import EXAMPLES
from reading import TOKENS
from small_llama import llama, word_tokenizer, write_gguf

TRAINING = (
    "--items 4 --dimension 8 --classes 16 --labels 4 --burstiness 2 --batch 16 --effort 20 --sequences 20"
)
HUGE = [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**60, 2**63 - 1, 2**63, 2**64 - 1]
READ_BY = {
    "measurement.nc": ["measurement", "compare", "noise", "report", "cite", "calibrate", "mixing"],
    "retrieval.nc": ["retrieval", "cite", "compare"],
    "network.nc": ["network", "cite"],
    "network.safetensors": ["weights", "cite"],
    "pack.zip": ["pack"],
    "small.gguf": ["model", "predict"],
    "model.safetensors": ["model"],
    "config.json": ["model", "predict"],
}


class Files(dict):
    """Files' bytes by their names, too long to be shown when an example fails."""

    def __repr__(self):
        return f"Files({', '.join(self)})"


def whole_files(folder):
    """A whole file of every kind by its name, and what else lies beside it."""
    lines = (
        f"measure tiny-alibi --tokens {TOKENS} --prompts 2 --out measurement.nc",
        "retrieve tiny-alibi --pairs 4 --positions 3 --prompts 2 --out retrieval",
        f"train {TRAINING} --threads 1 --networks 1 --out network",
        "study pack network --out pack.zip",
    )
    for line in lines:
        done = called(*line.split(), "-q", cwd=folder)
        assert done.returncode == 0, done.stderr
    shutil.copy(folder / "retrieval/retrieval.nc", folder)
    for path in (folder / "network").glob("*.*"):
        if not path.name.startswith("."):
            shutil.copy(path, folder / f"network{path.suffix}")
    model = llama()
    write_gguf(model, folder / "small.gguf")
    model.save_pretrained(folder / "model")
    word_tokenizer().save_pretrained(folder / "model")
    beside = {path.name: path.read_bytes() for path in (folder / "model").iterdir()}
    return Files(
        {name: (folder / name).read_bytes() for name in READ_BY if (folder / name).exists()} | beside
    )


def tried(reader, files, name, content, kind, *, by_hand=False):
    """Have a file read as a kind: it is, or it is refused in a line.

    A NetCDF file `by_hand`, without the digest over its bytes or with one made for it, may make HDF5 loop or
    crash (SECURITY.md): these are counted.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        beside = [name.replace(".nc", ".safetensors")] if name == "network.nc" else []
        if name in ("model.safetensors", "config.json"):
            beside = [
                one for one in files if one not in READ_BY or one in ("model.safetensors", "config.json")
            ]
        for one in beside:
            path.with_name(one).write_bytes(files[one])
        path.write_bytes(content)
        how, said = reader.read(kind, path.parent if beside and kind in ("model", "predict") else path)
    if by_hand and how in ("crashed", "endless"):
        EXAMPLES[f"{how} in HDF5"] += 1
        return
    assert how in ("read", "refused"), f"{kind} of {name}: {how}: {said}"
