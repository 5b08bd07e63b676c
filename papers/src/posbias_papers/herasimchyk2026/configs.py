"""The models of Herasimchyk et al. 2026: printed numbers (`printed.csv`), configurations, names.

Models are called as in the paper (`bloom-7b` is the hub's bloom-7b1). Tables 2 and 3 repeat the FineWeb-Edu
columns of Tables 4 and 5 for two models. A model or text of another name is the paper's where `model_of` and
`corpus_of` say so; any other stands in (`stand_in`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from posbias.theory.configs import PRESETS
from posbias_papers import read_rows

FOLDER = Path(__file__).parent
CORPORA = ("FineWeb-Edu", "DCLM-Baseline", "Wikipedia")
TOKENS = 256
"""Length of the prompts behind Tables 2 to 6."""
PROMPTS = 1000
PLOTTED = 2048
"""Length of the prompts of Figures 1 and 4."""
LENGTHS = (64, 256, 1024, PLOTTED)
"""Lengths at which λ is measured here."""


def printed(table: str) -> list[dict[str, Any]]:
    """Every number of Table 1, 4, 5 or 6: whose it is (`corpus` "" if of no text), of what, and its digits.

    What is said of scores is the level, such as "a"; `claimed` is 1 where the claim about its row is about it.
    """
    rows = (row for row in read_rows(FOLDER / "printed.csv") if row["table"] == table)
    return [row | {name: float(row[name]) for name in ("printed", "digits", "claimed")} for row in rows]


def published_curves() -> dict[str, list[float]]:
    """Influence of BLOOM-176B by position: measured, (b) and (c) as in the authors' figures, and other readings.

    `c_scaled` has content over √d_head, `b_own` the slopes of the model instead of the files', `c_own` both.
    """
    rows = read_rows(FOLDER / "bloom-176b.csv")
    return {name: [float(row[name]) for row in rows] for name in rows[0] if name != "position"}


def rollout_files() -> list[dict[str, Any]]:
    """What the authors' rollout files say of each model and corpus (`tools/rollout_files.py`).

    λ of the lower and the upper half of the layers; δ: the share of heads above zero, and the mean; how far (c)
    lies from (b) (Wasserstein), content as published and scaled (over √d_head), (b) with FineWeb's λ as in the
    authors' code; how much later scaled content moves the mean position, with one λ and the models' own slopes.
    """
    texts = ("model", "corpus")
    rows = (row.items() for row in read_rows(FOLDER / "rollouts.csv"))
    return [{key: value if key in texts else float(value) for key, value in row} for row in rows]


def _by_model(table: str) -> dict[str, dict[str, tuple[float, ...]]]:
    """The numbers of a table in their order, by model and corpus."""
    found: dict[str, dict[str, tuple[float, ...]]] = {}
    for row in printed(table):
        own = found.setdefault(row["model"], {})
        own[row["corpus"]] = (*own.get(row["corpus"], ()), row["printed"])
    return found


TABLE1 = {model: by[""] for model, by in _by_model("table1").items()}
"""Model → parameters in billions, depth."""
TABLE4, TABLE5 = _by_model("table4"), _by_model("table5")
"""Spearman, and 1-Wasserstein, of levels (a) to (c) by model and corpus."""
LARGE = ("mpt-30b", "bloom-176b")
"""The larger models, as Appendix B.2 calls them."""
FIGURES = {
    "fig2": ("bloom-176b", "mpt-7b"),
    "fig3": ("bloom-7b", "mpt-30b", "falcon-rw-7b"),
    "fig5": ("falcon-rw-7b", "bloom-7b", "bloom-176b", "mpt-7b"),
}
"""The models that figures show, from top to bottom; Tables 2 and 3 have those of Figure 2."""
PUBLISHED = ("bloom-176b", "FineWeb-Edu")
"""The model and corpus whose measured influence is in figures of the authors' repository (`published_curves`)."""
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
    """A printed model on the hub: its `preset`, the size of its heads, and how many parameters it has."""

    preset: str
    head_size: int
    parameters: int

    @property
    def source(self) -> str:
        """Its name on the hub."""
        return PRESETS[self.preset].source


HUB: dict[str, Hub] = {
    "falcon-rw-7b": Hub("falcon-rw-7b", 64, 7_516_020_736),
    "mpt-7b": Hub("mpt-7b", 128, 6_649_286_656),
    "mpt-30b": Hub("mpt-30b", 112, 29_957_200_896),
    "bloom-7b": Hub("bloom-7b1", 128, 7_069_016_064),
    "bloom-176b": Hub("bloom-176b", 128, 176_247_271_424),
}


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
    words = f"{', '.join(others) or 'None'} measured in place of {', '.join(lacking)} of the paper."
    return words if lacking else ""


def _plain(name: str) -> str:
    """A name without its organisation, in small letters."""
    return name.rpartition("/")[2].lower()
