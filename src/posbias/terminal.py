"""Answers as text for a terminal: a profile in blocks and words, a comparison as a table."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float

    from posbias.comparison import Agreement, Comparison, Score
    from posbias.profile import Profile
    from posbias.simulation import RecencyResult, VariantResult
    from posbias.verify import Finding


def describe(profile: "Profile") -> list[str]:
    """A profile for a person: the shape in blocks and the statistics in words."""
    s = profile.summary
    first, middle, last = s.ratio
    reach = "token" if s.effective_range == 1 else "tokens"
    shape, verdict = blocks(profile.mass[: profile.query + 1]), verdict_line(profile)
    return [
        *((verdict, shape) if profile.left_out else (shape, verdict)),
        f"share of the first {s.ends}: {s.first_mass:.2%}, of the last {s.ends}: {s.last_mass:.2%}",
        f"density first : middle : last = {first:.2f} : {middle:.2f} : {last:.2f} (uniform = 1)",
        f"trough at position {s.trough} of 0 … {s.query}, {s.trough_depth:.0%} below uniform",
        f"90 % of the mass within {s.effective_range} {reach} of the query; entropy {s.entropy:.2f} nats",
        *_band(profile),
        *([f"learned sinks took {profile.missing_mass:.2%}"] if profile.missing_mass else []),
        *_engines(profile),
    ]


def verdict_line(profile: "Profile") -> str:
    """'verdict: U', or why there is none."""
    if not profile.left_out:
        return f"verdict: {profile.summary.verdict}"
    lacks = any(not part.startswith("λ") for part in profile.left_out)
    settles = "`posbias measure` settles it" if lacks else "--mixing gives it"
    return f"no verdict: {left_out_note(profile)}; {settles}"


def left_out_note(profile: "Profile") -> str:
    """What a prediction leaves out, and what it is instead."""
    return f"{' and '.join(profile.left_out)} not known, this is {profile.remainder}"


def _band(profile: "Profile") -> list[str]:
    """What would be predicted with the λ of models that were measured."""
    band = profile.attrs.get("band")
    if band is None:
        return []
    shapes = [one.summary for one in band.profiles.values()]
    first, last = ([getattr(one, end) for one in shapes] for end in ("first_mass", "last_mass"))
    told = Counter(one.verdict for one in shapes if one.verdict)
    verdicts = ", ".join(f"{verdict} {count}" for verdict, count in told.most_common())
    return [
        f"with λ of {len(shapes)} pretrained models instead: the first {shapes[0].ends} hold {min(first):.2%} to "
        f"{max(first):.2%}, the last {shapes[0].ends} {min(last):.2%} to {max(last):.2%}"
        + (f"; verdicts: {verdicts}" if told else "")
    ]


def _engines(profile: "Profile") -> list[str]:
    """How a predicted profile was computed: engines and the layers each took."""
    used = profile.attrs.get("method")
    if not used:
        return []
    layers = [f"{name} ({count} layer{'s' * (count > 1)})" for name, count in used.items()]
    return [f"computed by {', '.join(layers)}"]


def describe_variation(quantity: str, varied: "Sequence[tuple[float, Profile]]") -> list[str]:
    """Many profiles for a person: one line of blocks and a few numbers for each value."""
    rows = [
        [
            f"{value:g}",
            blocks(profile.mass[: profile.query + 1], 40),
            profile.summary.verdict or "–",
            f"{profile.summary.first_mass:.1%}",
            f"{profile.summary.last_mass:.1%}",
            str(profile.summary.trough),
        ]
        for value, profile in varied
    ]
    return table([quantity, "profile", "verdict", "first 5 %", "last 5 %", "trough"], rows)


def findings_table(findings: "list[Finding]") -> list[str]:
    """What trying the statements gave: a line each, then a note for each that is not as printed."""
    rows, notes = [], []
    for finding in findings:
        row = finding.as_dict()
        name = f"{row['source']} {row['statement']}"
        rows.append([name, row["verdict"], str(row["instances"]), f"{row['slack']:.2g}"])
        if row["note"]:
            notes.append(f"{name}: {row['note']}")
    counts = [f"{sum(f.verdict == kind for f in findings)} {kind}" for kind in ("holds", "amended", "fails")]
    lines = table(["statement", "verdict", "instances", "slack"], rows)
    return [*lines, "", ", ".join(counts), *(["", *notes] if notes else [])]


def recency_table(result: "RecencyResult") -> list[str]:
    """What a simulation says: a line for each layer, then what the words mean."""
    scores, last = result.mean_scores.value, result.model.tokens - 1
    probabilities = zip(result.recency_probability, result.exhibits_recency(), strict=True)
    rows = [
        [
            str(layer + 1),
            str(probability),
            definition.verdict,
            " ".join(f"{scores[layer, last, key]:.3f}" for key in (0, last // 2, last - 1)),
        ]
        for layer, (probability, definition) in enumerate(probabilities)
    ]
    head = [
        "layer",
        "recency probability",
        "Definition 1",
        "last query's mean scores: first, middle, last key",
    ]
    return [*table(head, rows), "", f"{result.samples:,} samples; ½ is no preference between two keys"]


def variants_table(results: "Mapping[str, VariantResult]") -> list[str]:
    """Recency probabilities of variants by layer: the mean over networks, and how far networks lie apart."""
    rows = []
    for name, result in results.items():
        for label, part in result.parts(name):
            cells = []
            for mean, variance in zip(part.recency_probability, part.variance, strict=True):
                spread = (
                    f" ({max(variance.value, 0.0) ** 0.5:.3f})" if variance.value == variance.value else ""
                )
                cells.append(f"{mean}{spread}")
            rows.append([label, *cells])
    head = ["variant", *(f"layer {layer + 1}" for layer in range(len(rows[0]) - 1))]
    lines = table(head, [row + [""] * (len(head) - len(row)) for row in rows])
    return [*lines, "", "recency probability ± standard error (standard deviation over networks); ½: none"]


def blocks(mass: "Float[np.ndarray, 'position']", width: int = 64) -> str:
    """A profile as a line of block characters, on a logarithmic scale of mean mass per position."""
    import numpy as np

    width = min(width, mass.size)
    edges = np.linspace(0, mass.size, width + 1).round().astype(int)
    density = np.array([mass[a:b].mean() for a, b in itertools.pairwise(edges)]) * mass.size
    level = np.clip((np.log2(np.maximum(density, 2.0**-9)) + 3.0) / 6.0, 0.0, 1.0)
    return "".join("▁▂▃▄▅▆▇█"[round(x * 7)] for x in level)


def comparison_table(comparison: "Comparison", labels: dict[str, str]) -> list[str]:
    """A comparison as aligned lines: profiles, baselines, what noise allows; then the held-out scores, if any."""
    from posbias.reliability import ROWS

    rows = [[labels.get(key, key), *_cells(one)] for key, one in comparison.agreements.items()]
    rows += [
        [f"baseline: {key.replace('_', ' ')}", *_cells(one)] for key, one in comparison.baselines.items()
    ]
    noise, held_out = comparison.reliability, comparison.held_out
    if noise is not None:
        rows += [[label, *_cells(getattr(noise, name))] for name, label in ROWS.items()]
    if held_out is not None:
        rows += [
            [f"held out: {labels.get(key, key)}", *_cells(one)] for key, one in held_out.agreements.items()
        ]
        if noise is not None:
            rows.append(["held out: noise ceiling (estimated)", *_cells(noise.noiseless_half)])
    return table(["", "Spearman", "Wasserstein", "Spearman w/o first", "Wasserstein w/o first"], rows)


def _cells(agreement: "Agreement") -> list[str]:
    scores = agreement.spearman, agreement.wasserstein
    scores += agreement.spearman_without_first, agreement.wasserstein_without_first
    return [_score(score, digits) for score, digits in zip(scores, (2, 3, 2, 3), strict=True)]


def _score(score: "Score", digits: int) -> str:
    if score.value != score.value:
        return "–"
    around = f" [{score.interval[0]:.{digits}f}, {score.interval[1]:.{digits}f}]" if score.interval else ""
    return f"{score.value:.{digits}f}{around}"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Rows under a head, as lines with aligned columns."""
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [head, *rows]
    ]
