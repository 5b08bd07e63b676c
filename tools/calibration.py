"""How extrapolating from a measurement fares: extrapolation.toml, the table of docs/evidence.md.

python tools/calibration.py SHORT.nc … --against LONG.nc …    add trials from each to each longer one
"""

import argparse
import math
from pathlib import Path

import numpy as np
import xarray as xr

from posbias.comparison.agreement import reliability
from posbias.comparison.extrapolation import RULES, ExtrapolationTrial, extrapolate, trials
from posbias.comparison.scores import Comparison, compare_all
from posbias.profiles.calibration import Interval
from posbias.profiles.curves import spearman, wasserstein
from posbias.profiles.estimate import Estimate
from posbias.profiles.measurements import load_measurement
from posbias.profiles.profile import Profile, harmonic, measured_influence, uniform

Pair = tuple[float, float]  # Spearman, Wasserstein
ROOT = Path(__file__).parents[1]
DATA = ROOT / "src" / "posbias" / "comparison" / "extrapolation.toml"
PAGE = ROOT / "docs" / "evidence.md"
HEAD = """# How each rule of `extrapolation` fared on models that were measured at both lengths: Spearman
# and Wasserstein against the gradient influence measured at the longer one (other prompts of the same text,
# whose windows may share tokens with those of the shorter). Made by `tools/calibration.py`.
"""


def trial(short: xr.Dataset, long: xr.Dataset) -> ExtrapolationTrial:
    """Every rule from a short measurement against a longer one."""
    target, tokens = measured_influence(long), long.sizes["position"]
    known = {rule: Profile(extrapolate(short, tokens, rule).mass) for rule in RULES}
    compared = compare_all(known | {"recency": harmonic(tokens)}, target)
    return ExtrapolationTrial(
        str(short.attrs["model"]),
        short.sizes["position"],
        tokens,
        long.sizes["prompt"],
        round(float(wasserstein(uniform(tokens).mass, target.mass)), 4),
        *noise(target),
        {rule: _scores(profile.mass, target.mass) for rule, profile in known.items()},
        str(target.summary.verdict),
        {rule: str(profile.summary.verdict) for rule, profile in known.items()},
        {rule: _leads(compared, rule) for rule in known if rule != "stretched"},
    )


def _leads(compared: Comparison, rule: str) -> dict[str, tuple[Interval, Interval]]:
    """By how much a rule was better than the stretched curve and recency alone: 95 % intervals of both scores."""
    found = {}
    for other in ("stretched", "recency"):
        pair = next(one for one in compared.differences if {one.more, one.less} == {rule, other})
        sign = 1 if pair.more == rule else -1
        rank, distance = (
            _interval(score, sign * better)
            for score, better in ((pair.scores.spearman, 1), (pair.scores.wasserstein, -1))
        )
        found[other] = (rank, distance)
    return found


def _interval(score: Estimate, sign: int) -> Interval:
    low, high = score.bounds or (-math.inf, math.inf)
    ends = sorted((sign * low, sign * high))
    return round(ends[0], 4), round(ends[1], 4)


def noise(measured: Profile) -> tuple[Pair, Pair, Pair]:
    """Scores of recency alone, of half the prompts against the other half, over many splits, and the ceiling."""
    found = reliability(measured)
    assert found is not None
    rows = (found.split_half, found.noiseless)
    halves, ceiling = [(round(row.spearman.value, 3), round(row.wasserstein.value, 4)) for row in rows]
    return _scores(harmonic(measured.tokens).mass, measured.mass), halves, ceiling


def _scores(p: np.ndarray, q: np.ndarray) -> Pair:
    return round(float(spearman(p, q)), 3), round(float(wasserstein(p, q)), 4)


def write(new: list[ExtrapolationTrial]) -> None:
    """New trials next to those known, as facts, and as a table between the page's marks."""
    kept = {_place(one): one for one in (*trials(), *new)}
    ordered = [kept[place] for place in sorted(kept)]
    DATA.write_text(HEAD + "".join(map(_entry, ordered)), encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split("<!-- trials -->")
    after = rest.split("<!-- end of trials -->")[1]
    table = "\n".join(_rows(ordered))
    PAGE.write_text(f"{before}<!-- trials -->\n\n{table}\n\n<!-- end of trials -->{after}", encoding="utf-8")


def _place(one: ExtrapolationTrial) -> tuple[str, int, int]:
    return one.model, one.measured, one.tokens


def _entry(one: ExtrapolationTrial) -> str:
    about = (
        f'model = "{one.model}"\nmeasured = {one.measured}\ntokens = {one.tokens}\nprompts = {one.prompts}\n'
    )
    about += f'even = {one.even}\nverdict = "{one.verdict}"\n'
    about += "".join(f"{name} = {list(getattr(one, name))}\n" for name in ("recency", "halves", "ceiling"))
    about += "".join(f'verdicts.{name} = "{said}"\n' for name, said in one.verdicts.items())
    about += "".join(f"scores.{name} = {list(two)}\n" for name, two in one.scores.items())
    for rule, leads in one.leads.items():
        about += "".join(f"leads.{rule}.{other} = {[*map(list, two)]}\n" for other, two in leads.items())
    return f"\n[[trial]]\n{about}"


def _rows(ordered: list[ExtrapolationTrial]) -> list[str]:
    """Scores and verdict of each rule, of recency alone, and as measured, as a table."""
    head = "| from → to | " + " | ".join(RULES) + " | recency only | measured |"
    return [head, "|" + "---|" * (3 + len(RULES)), *map(_row, ordered)]


def _row(one: ExtrapolationTrial) -> str:
    cells = [f"{one.model}, {one.measured:,} → {one.tokens:,}"]
    for rule in RULES:
        said = f"{_pair(one.scores[rule])} {one.verdicts[rule]}" if rule in one.scores else ""
        mark = "" if rule not in one.scores or not one.won(rule) else "**" if one.surely(rule) else "*"
        cells.append(f"{mark}{said}{mark}")
    return "| " + " | ".join([*cells, _pair(one.recency), one.verdict]) + " |"


def _pair(scores: tuple[float, float]) -> str:
    return f"{scores[0]:.2f} / {scores[1]:.3f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("short", type=Path, nargs="+")
    parser.add_argument("--against", type=Path, nargs="+", required=True)
    asked = parser.parse_args()
    short, long = ([load_measurement(path) for path in paths] for paths in (asked.short, asked.against))
    write(
        [
            trial(source, target)
            for source in short
            for target in long
            if source.attrs["model"] == target.attrs["model"]
            and source.sizes["position"] < target.sizes["position"]
        ]
    )
