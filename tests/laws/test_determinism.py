"""The same arguments give the same bytes: whoever compiled, in whatever order, in any folder, on any threads."""

import hashlib
import importlib
import json
import os
import pkgutil
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.registry import CPUDispatcher

import posbias
from posbias import simulation, theory
from posbias.simulation import RecencyModel, simulate_recency
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import ConstantDiagonal
from posbias.theory.masks import Causal, Full, Prefix, SlidingWindow
from posbias.theory.mixing import ConstantMixing
from posbias.theory.positional import T5, ALiBi
from posbias.theory.rollout import influence
from posbias_papers.simulation import VARIANTS, simulate_variant

HEADS = 32
"""Enough that sums over heads are taken in vectors, where a compiler's liberties show."""


def rollout(mask, curved=False, tokens=900, threads=1):
    """The bytes of a profile: exponential logits, or learned ones by distance where `curved`."""
    rng = np.random.default_rng(0)
    positional = (
        T5(rng.normal(0, 2, (HEADS, 32))) if curved else ALiBi(0.8 * np.exp(-rng.uniform(0, 6, HEADS)))
    )
    content = ConstantDiagonal(rng.normal(0, 1, HEADS), first_column=(0.5,))
    layer = Layer(HEADS, mask, positional, content, sinks=(0.3,))
    profile = influence(Architecture(3, (layer,), ConstantMixing(0.3)), tokens, threads=threads)
    return profile.mass.tobytes() + np.float64(profile.missing_mass).tobytes()


def recency(threads=1, engine="gram", samples=5000, **model):
    """The bytes of a simulation's moments."""
    tally = simulate_recency(RecencyModel(**model), samples, threads=threads, engine=engine).tally
    return tally.mean.tobytes() + tally.squares.tobytes() + tally.products.tobytes()


def variant(name):
    """The bytes of a variant's recency probabilities, network by network."""
    drawn = simulate_variant(VARIANTS[name], 2, 10)
    return drawn.score.share.tobytes() + drawn.score.noise.tobytes()


CASES = {
    "scan": lambda threads: rollout(Causal(), threads=threads),
    "scan, long": lambda threads: rollout(Causal(), tokens=9000, threads=threads),
    "stream": lambda threads: rollout(Causal(), curved=True),
    "gram": lambda threads: recency(threads, depth=2),
    "gram, residual": lambda threads: recency(threads, depth=2, residual=True),
    "token space": lambda threads: recency(engine="token_space", samples=200, depth=2),
    "variant": lambda threads: variant("block"),
    "window": lambda threads: rollout(SlidingWindow(200)),
    "prefix": lambda threads: rollout(Prefix(150)),
    "full": lambda threads: rollout(Full(), tokens=500),
    "transforms": lambda threads: rollout(Causal(), curved=True, tokens=12_000),
    "transforms, window": lambda threads: rollout(SlidingWindow(300), curved=True, tokens=3000),
    "gram, no norm": lambda threads: recency(threads, depth=2, norm="none"),
    "gram, post": lambda threads: recency(threads, depth=2, order="post"),
}


def digests(names, threads=1):
    """A digest of the bytes of each case, computed in the order of `names`."""
    return {name: hashlib.sha256(CASES[name](threads)).hexdigest() for name in names}


def elsewhere(names, cache, threads=1, shuffled=0, source=None):
    """`digests` in a fresh process with the compiler's cache in `cache`, perhaps from another folder."""
    names = list(names)
    random.Random(shuffled).shuffle(names)
    source = Path(posbias.__file__).parents[1] if source is None else source
    paths = os.pathsep.join([str(source), str(Path(__file__).parent)])
    settings = {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": paths, "PYTHONHASHSEED": str(shuffled)}
    settings["OPENBLAS_NUM_THREADS"] = str(threads)
    code = f"import json, test_determinism as t; print(json.dumps(t.digests({names!r}, {threads})))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | settings, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.slow
def test_every_engine_gives_the_same_bytes_from_any_cache(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__")
    copy = shutil.copytree(
        Path(posbias.__file__).parent, tmp_path / "copy" / "posbias", ignore=ignored
    ).parent
    compiling = elsewhere(CASES, tmp_path / "cache")
    assert set(compiling) == set(CASES)
    assert any((tmp_path / "cache").rglob("*.nbc"))
    assert elsewhere(CASES, tmp_path / "cache", threads=2, shuffled=1) == compiling
    assert elsewhere(CASES, tmp_path / "second", shuffled=2, source=copy) == compiling


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("scan")])
def test_threads_do_not_change_a_byte(name):
    assert CASES[name](1) == CASES[name](2) == CASES[name](3)


def test_no_compiled_function_leaves_its_bits_to_its_caller():
    """Liberties only where no second machine code can be run instead, and no option taken from a caller."""
    packages = [
        entry.name
        for package in (theory, simulation)
        for entry in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    ]
    seen = 0
    for held in (vars(importlib.import_module(name)) for name in packages):
        for caller in (one for one in held.values() if isinstance(one, CPUDispatcher)):
            assert {"fastmath", "forceinline", "error_model"} <= set(caller.targetoptions)
            called = (caller.py_func.__globals__.get(name) for name in caller.py_func.__code__.co_names)
            for callee in (one for one in called if isinstance(one, CPUDispatcher)):
                seen += 1
                options = callee.targetoptions
                assert options["forceinline"] or not options["fastmath"], (caller, callee)
    assert seen > 20
