"""The levels of models that nobody here has measured, from the rollout files that the authors publish.

A folder is searched for `.yaml` files, in the layout of the authors' repository (`no_content/MODEL.yaml`,
`all_content/CORPUS/MODEL.yaml`, with `_2048` after the first folder for that length) or flat
(`MODEL-no-content.yaml`, `MODEL-content.yaml`). Level (a) is level (b) with λ = 1. Read as `published`, files are
taken as the authors' code takes them: a diagonal given once is head 0's alone. `corrected` gives it to all heads,
divides content by √d_head and takes slopes from the model's own configuration; the files' λ, averaged over
tokens, is all there is.
"""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InputFileError
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.configs import preset, read_architecture
from posbias.theory.content import ConstantDiagonal
from posbias.theory.mixing import AttentionOnly
from posbias_papers.herasimchyk2026.curves import Curves
from posbias_papers.herasimchyk2026.levels import profile_of
from posbias_papers.herasimchyk2026.printed import CORPORA, HUB, PLOTTED, TOKENS, Reading

_FOLDERS = {"fineweb-edu": CORPORA[0], "dclm": CORPORA[1], "wikipedia": CORPORA[2]}
_BARE, _FULL = "no_content", "all_content"
Files = dict[tuple[str, str], Path]


def config_curves(
    folder: str | os.PathLike[str], reading: Reading = "corrected", tokens: int = TOKENS
) -> list[Curves]:
    """The levels of every printed model of which `folder` holds a file without content, by model and corpus.

    Raises `InputFileError` when it holds none, or a file cannot be read; `InvalidValueError` for a file whose keys
    or values are wrong.
    """
    files = _files(Path(folder), tokens)
    bare = {model: path for (kind, model), path in files.items() if kind == _BARE}
    if not bare:
        raise InputFileError(
            f"configs: {folder} holds no rollout file for {tokens} tokens without content, files such as "
            "no_content/bloom.yaml needed"
        )
    found = []
    for model in (name for name in HUB if name in bare):
        plain = _as_read(read_architecture(bare[model]).architecture, model, reading)
        without = replace(plain, mixing=AttentionOnly())
        lower = {"a": profile_of("a", without, tokens), "b": profile_of("b", plain, tokens)}
        full = {corpus: path for corpus in CORPORA if (path := files.get((corpus, model)))}
        for corpus in full or CORPORA[:1]:
            levels = dict(lower)
            if corpus in full:
                architecture = _as_read(read_architecture(full[corpus]).architecture, model, reading)
                levels["c"] = profile_of("c", architecture, tokens)
            found.append(Curves(model, corpus, levels, remarks=("the authors' files, not measured here",)))
    return found


def config_mixing(
    folder: str | os.PathLike[str], tokens: int = PLOTTED
) -> dict[str, Float[np.ndarray, "layer"]]:
    """λ by layer of every printed model of which `folder` holds a file without content at so many tokens.

    It is the λ of Figure 1, averaged over its prompts. Raises as `config_curves` for what cannot be read.
    """
    found = {}
    for (_, model), path in _files(Path(folder), tokens).items():
        architecture = read_architecture(path).architecture
        found.setdefault(model, np.asarray(architecture.mixing.values(architecture.depth), dtype=np.float64))
    return found


def _files(folder: Path, tokens: int) -> Files:
    """Rollout files by (`no_content` or a corpus, model)."""
    if not folder.is_dir():
        raise InputFileError(f"configs: {folder} is no folder, one with the authors' rollout files needed")
    stems = {hub.stem: model for model, hub in HUB.items()} | {name: name for name in HUB}
    found: Files = {}
    for path in sorted(folder.rglob("*.yaml")):
        stem, kind = _kind(path)
        if kind is None or stem not in stems or read_architecture(path).tokens != tokens:
            continue
        found.setdefault((kind, stems[stem]), path)
    return found


def _kind(path: Path) -> tuple[str, str | None]:
    """The model's name in a file's name, and which file it is: `no_content`, a corpus, or None."""
    stem, parents = path.stem, [parent.name for parent in path.parents]
    if stem.endswith(("noresidual", "no-residual")):
        return stem, None
    if stem.endswith("-no-content"):
        return stem.removesuffix("-no-content"), _BARE
    if stem.endswith("-content"):
        return stem.removesuffix("-content"), CORPORA[0]
    if parents[0].removesuffix(f"_{PLOTTED}") == _BARE:
        return stem, _BARE
    if parents[1:2] and parents[1].removesuffix(f"_{PLOTTED}") == _FULL:
        return stem, _FOLDERS.get(parents[0])
    return stem, None


def _as_read(architecture: Architecture, model: str, reading: Reading) -> Architecture:
    """The architecture of a file, read one way or the other."""
    scale = 1.0 if reading == "published" else 1.0 / np.sqrt(HUB[model].head_size)
    own = preset(HUB[model].preset).layers[0].positional

    def layer(given: Layer) -> Layer:
        content = given.content
        if isinstance(content, ConstantDiagonal):
            diagonal = np.array(content.diagonal) * scale
            if reading == "published" and len(diagonal) == 1:
                diagonal = np.concatenate([diagonal, np.zeros(given.heads - 1)])
            constant = np.array(content.constant) * scale
            content = ConstantDiagonal(tuple(diagonal.tolist()), tuple(constant.tolist()))
        return replace(given, content=content, positional=given.positional if reading == "published" else own)

    return replace(architecture, layers=tuple(map(layer, architecture.layers)), name=model)
