"""The numbers behind the figures: every cell's gaps with loss and in-context accuracy, as rows and as a page."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.claims import Judged, count, signed_text
from posbias.estimate import Estimate
from posbias.papers.wu2025.figures import Setting
from posbias.papers.wu2025.gaps import LEARNT, PAIRS, Gaps
from posbias.sources import cite

if TYPE_CHECKING:
    from posbias.training.kernels import Agreement

HEAD = ("setting", *(pair.replace("-", "–") for pair in PAIRS), "accuracy", "loss", "learnt")
"""What the columns of a table of gaps are."""


def rows_of(setting: Setting, gaps: Gaps) -> list[dict[str, Any]]:
    """A cell's gaps, one row for each pair, for JSON: of the networks that have learnt, and of every one."""
    learnt = gaps.learnt
    return [
        {
            "setting": str(setting),
            "pair": pair,
            "learnt": int(learnt.sum()),
            "members": int(learnt.size),
            "gap": _estimate(gaps.of(pair)),
            "every_gap": gaps.gaps[pair],
            "every_informative_gap": gaps.informative[pair],
            "in_context_accuracy": gaps.accuracy,
            "loss": gaps.loss,
        }
        for pair in PAIRS
    ]


def page_of(
    name: str,
    gaps: Mapping[Setting, Gaps],
    claims: Sequence[Judged],
    note: str,
    predicted: Mapping[Setting, Mapping[str, "Agreement"]] | None = None,
) -> str:
    """A figure in words: what was trained, the gaps, the claims with every effect, what rollouts predict."""
    lines = [
        f"# {cite('wu2025').short}, Figure {name.removeprefix('fig')}",
        "",
        f"{note}. Gaps are means over the networks that have learnt to retrieve from their context (in-context "
        f"accuracy of at least {LEARNT}) with their standard error; accuracy and loss, on new classes, are means "
        "over all.",
        "",
        f"| {' | '.join(HEAD)} |",
        f"|{'---|' * len(HEAD)}",
        *(f"| {' | '.join(row_of(setting, one))} |" for setting, one in gaps.items()),
        "",
        ", ".join(f"{number} {verdict}" for verdict, number in count(claims).items()),
        "",
    ]
    for claim in claims:
        lines += [f"- **{claim.verdict}**: {claim.sentence}", *(f"  - {one}" for one in claim.evidence)]
    return "\n".join(lines + _predictions(predicted or {})) + "\n"


def _predictions(predicted: Mapping[Setting, Mapping[str, "Agreement"]]) -> list[str]:
    """What rollouts predict of the gaps, each with its verdict, and how often a decided sign is right."""
    by_profile: dict[str, list[tuple[Setting, Agreement]]] = {}
    for setting, agreements in predicted.items():
        for agreement in agreements.values():
            by_profile.setdefault(agreement.label, []).append((setting, agreement))
    if not by_profile:
        return []
    lines = [
        "",
        "Do the gaps follow a rollout? Predicted gap of the labels' masses on informative sequences, over the "
        "networks that have learnt, and whether the measured sign agrees where both are told from zero; the size "
        "is not predicted.",
        "",
    ]
    for profile, cells in by_profile.items():
        found = [sign for _, one in cells for sign in one.signs.values()]
        right, wrong = found.count("holds"), found.count("fails")
        lines += [
            f"**{profile}**: {right} of {right + wrong} decided signs right, {found.count('undecided')} undecided",
            "",
            f"| setting | {' | '.join(pair.replace('-', '–') for pair in PAIRS)} | order |",
            f"|{'---|' * (len(PAIRS) + 2)}",
            *(
                f"| {setting} | " + " | ".join(_predicted(one, pair) for pair in PAIRS) + f" | {one.order} |"
                for setting, one in cells
            ),
            "",
        ]
    return lines[:-1]


def _predicted(agreement: "Agreement", pair: str) -> str:
    """'+0.120 holds', or a dash where no network has learnt."""
    value = agreement.predicted[pair].value
    return "–" if math.isnan(value) else f"{signed_text(value)} {agreement.signs[pair]}"


def row_of(setting: Setting, gaps: Gaps) -> list[str]:
    """A cell in words, under `HEAD`."""
    learnt = gaps.learnt
    shown = [_signed(gaps.of(pair)) for pair in PAIRS]
    means = [f"{mean:.2f}" for mean in gaps.means]
    return [str(setting), *shown, *means, f"{learnt.sum()} of {learnt.size}"]


def _signed(values: np.ndarray) -> str:
    if not values.size:
        return "–"
    estimate = Estimate.of(values)
    error = f" ± {estimate.se:.3f}" if values.size > 1 else ""
    return f"{signed_text(estimate.value)}{error}"


def _estimate(values: np.ndarray) -> dict[str, float] | None:
    if not values.size:
        return None
    estimate = Estimate.of(values)
    return {"value": estimate.value, "se": estimate.se}
