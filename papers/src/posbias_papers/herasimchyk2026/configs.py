"""The models of Herasimchyk et al. 2026: printed numbers, configurations, names.

Models are called as in the paper (`bloom-7b` is the hub's bloom-7b1). Tables 2 and 3 repeat the FineWeb-Edu
columns of Tables 4 and 5 for two models. A model or text of another name is the paper's where `model_of` and
`corpus_of` say so; any other stands in (`stand_in`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from posbias.theory.configs import PRESETS

LEVELS = ("a", "b", "c")
"""The paper's levels: attention only, residual-aware, residual-aware with constant content."""
CORPORA = ("FineWeb-Edu", "DCLM-Baseline", "Wikipedia")
TOKENS = 256
"""Length of the prompts behind Tables 2 to 6."""
PROMPTS = 1000
PLOTTED = 2048
"""Length of the prompts of Figures 1 and 4."""
LENGTHS = (64, 256, 1024, PLOTTED)
"""Lengths at which λ is measured here."""
TABLE1: dict[str, tuple[float, int]] = {
    "falcon-rw-7b": (7, 36),
    "mpt-7b": (7, 32),
    "mpt-30b": (30, 48),
    "bloom-7b": (7, 30),
    "bloom-176b": (176, 70),
}
"""Model → parameters in billions, depth."""
LARGE = ("mpt-30b", "bloom-176b")
"""The larger models, as Appendix B.2 calls them."""
FIGURES = {
    "fig2": ("bloom-176b", "mpt-7b"),
    "fig3": ("bloom-7b", "mpt-30b", "falcon-rw-7b"),
    "fig5": ("falcon-rw-7b", "bloom-7b", "bloom-176b", "mpt-7b"),
}
"""The models that figures show, from top to bottom; Tables 2 and 3 have those of Figure 2."""
Row = tuple[float, float, float]
"""A number for each level."""


def _by_corpus(rows: dict[str, tuple[Row, Row, Row]]) -> dict[str, dict[str, Row]]:
    return {model: dict(zip(CORPORA, row, strict=True)) for model, row in rows.items()}


TABLE4 = _by_corpus(
    {
        "falcon-rw-7b": ((-0.52, 0.60, 0.90), (-0.81, 0.62, 0.88), (-0.83, 0.61, 0.90)),
        "mpt-7b": ((-0.43, 0.88, 0.53), (-0.35, 0.79, 0.47), (-0.56, 0.93, 0.68)),
        "mpt-30b": ((-0.56, 0.62, 0.81), (-0.47, 0.61, 0.63), (-0.68, 0.48, 0.83)),
        "bloom-7b": ((-0.44, 0.83, 0.50), (-0.35, 0.77, 0.41), (-0.58, 0.93, 0.66)),
        "bloom-176b": ((-0.57, 0.91, 0.83), (-0.52, 0.86, 0.80), (-0.49, 0.98, 0.96)),
    }
)
"""Spearman by model, corpus and level."""
TABLE5 = _by_corpus(
    {
        "falcon-rw-7b": ((0.63, 0.19, 0.16), (0.66, 0.19, 0.15), (0.68, 0.21, 0.13)),
        "mpt-7b": ((0.62, 0.09, 0.10), (0.59, 0.06, 0.12), (0.66, 0.13, 0.06)),
        "mpt-30b": ((0.61, 0.16, 0.05), (0.58, 0.14, 0.03), (0.65, 0.20, 0.09)),
        "bloom-7b": ((0.63, 0.04, 0.18), (0.61, 0.03, 0.18), (0.67, 0.08, 0.14)),
        "bloom-176b": ((0.65, 0.08, 0.01), (0.63, 0.06, 0.02), (0.69, 0.11, 0.05)),
    }
)
"""1-Wasserstein by model, corpus and level."""
BETWEEN: dict[str, dict[str, tuple[float, float]]] = {
    model: dict(zip(CORPORA, pairs, strict=True))
    for model, pairs in {
        "falcon-rw-7b": ((0.344, 0.052), (0.342, 0.003), (0.346, 0.016)),
        "mpt-7b": ((0.201, 0.019), (0.193, 0.003), (0.196, 0.005)),
        "mpt-30b": ((0.112, 0.015), (0.102, 0.002), (0.107, 0.015)),
        "bloom-7b": ((0.219, 0.011), (0.215, 0.006), (0.216, 0.008)),
        "bloom-176b": ((0.077, 0.011), (0.044, 0.029), (0.058, 0.016)),
    }.items()
}
"""Wasserstein distance of (c) from (b), by model and corpus: content as published, and scaled (over √d_head).

From config/rollout/alibi of github.com/ml-uhh/position-bias (commit a514e09), by `levels.content_distances`.
"""
TABLE6: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "falcon-rw-7b": ((0.53, 0.15), (0.45, 0.16)),
    "mpt-7b": ((0.58, 0.16), (0.47, 0.20)),
    "mpt-30b": ((0.75, 0.18), (0.73, 0.17)),
    "bloom-7b": ((0.54, 0.18), (0.47, 0.20)),
    "bloom-176b": ((0.86, 0.13), (0.84, 0.14)),
}
"""Model → (mean, standard deviation) over layers and heads, by region."""
REGIONS = ("diagonal", "below it")
"""Those of Table 6."""
VIOLATIONS, GAP = 1e-6, 2e-6
"""Section 4: the largest share of violating triples, the mean gap of those."""
BINS = 199
"""Bins of Table 6 in the authors' code (200 edges); the paper does not print them."""
Reading = Literal["corrected", "published"]
"""`corrected`: what the model does. `published`: what the paper's code takes for it (see `levels`)."""


@dataclass(frozen=True)
class Hub:
    """A printed model on the hub: its `preset`, the name of its rollout files, and the size of its heads.

    `vocabulary` is that of its embedding, padded as it is stored; `biases` says whether its linear maps have them,
    `embedding_norm` whether a norm follows the embedding.
    """

    preset: str
    stem: str
    head_size: int
    vocabulary: int
    biases: bool = True
    embedding_norm: bool = False

    @property
    def source(self) -> str:
        """Its name on the hub."""
        return PRESETS[self.preset].source

    @property
    def parameters(self) -> int:
        """How many parameters the model has: embedding and, in each layer, 12d² of attention and feed-forward.

        The output shares the embedding. A layer has two norms of d weights, and where there are biases 9d of the
        maps and 2d of these norms.
        """
        known = PRESETS[self.preset]
        width = known.heads * self.head_size
        layer = 12 * width**2 + (13 if self.biases else 2) * width
        norms = (2 if self.biases else 1) * width * (2 if self.embedding_norm else 1)
        return self.vocabulary * width + known.depth * layer + norms


HUB: dict[str, Hub] = {
    "falcon-rw-7b": Hub("falcon-rw-7b", "falcon-rw-7b", 64, 65_024),
    "mpt-7b": Hub("mpt-7b", "mpt-7b", 128, 50_432, biases=False),
    "mpt-30b": Hub("mpt-30b", "mpt-30b", 112, 50_432, biases=False),
    "bloom-7b": Hub("bloom-7b1", "bloom-7b1", 128, 250_880, embedding_norm=True),
    "bloom-176b": Hub("bloom-176b", "bloom", 128, 250_880, embedding_norm=True),
}


@dataclass(frozen=True)
class Number:
    """A printed number: whose it is (`corpus` "" if of no text), of what, and its digits after the point.

    `claimed` says whether the claim about its row is about it.
    """

    model: str
    corpus: str
    what: str
    printed: float
    digits: int = 2
    claimed: bool = True


def numbers(table: str) -> Iterator[Number]:
    """Every number of one of Tables 1 to 6; what is said of scores is the level, such as "a"."""
    if table == "table1":
        for model, (size, depth) in TABLE1.items():
            yield Number(model, "", "parameters (B)", size, digits=0, claimed=False)
            yield Number(model, "", "depth", depth, digits=0)
    elif table == "table6":
        for model, regions in TABLE6.items():
            for region, (mean, spread) in zip(REGIONS, regions, strict=True):
                yield Number(model, "", f"{region}, mean", mean)
                yield Number(model, "", f"{region}, deviation", spread, claimed=False)
    else:
        featured = table in ("table2", "table3")
        whole = TABLE4 if table in ("table2", "table4") else TABLE5
        for model in FIGURES["fig2"] if featured else TABLE1:
            for corpus in CORPORA[:1] if featured else CORPORA:
                for level, value in zip(LEVELS, whole[model][corpus], strict=True):
                    yield Number(model, corpus, level, value)


# --- which models and texts a name means -------------------------------------------------------------------

_TEXTS = {"FineWeb-Edu": "fineweb", "DCLM-Baseline": "dclm", "Wikipedia": "wiki"}


def model_of(name: str) -> str:
    """The model of the paper that is called so: there, by its preset, on the hub; "" for any other."""
    own = {_plain(called): model for model, hub in HUB.items() for called in (model, hub.preset, hub.source)}
    return own.get(_plain(name), "")


def corpus_of(text: str) -> str:
    """The paper's corpus that a text is, by what its name has in it; "" for none and for no text."""
    return next((corpus for corpus, word in _TEXTS.items() if word in text.lower()), "")


def stand_in(measured: Iterable[str]) -> str:
    """'tiny-alibi measured in place of mpt-30b, bloom-176b of the paper'; empty if all of the paper's were."""
    measured = [*measured]
    others = [name for name in measured if not model_of(name)]
    lacking = [model for model in TABLE1 if model not in {*map(model_of, measured)}]
    return (
        f"{', '.join(others) or 'None'} measured in place of {', '.join(lacking)} of the paper."
        if lacking
        else ""
    )


def _plain(name: str) -> str:
    """A name without its organisation, in small letters."""
    return name.rpartition("/")[2].lower()
