"""Answers as text for a terminal: a profile in blocks and words, a comparison as a table."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from posbias.core.text_tables import plain, table

COLUMNS = 8
"""Of a table over two quantities."""
BASELINES = {"recency_only": "1/(distance + 1)"}
SAME = "the same without the first token, and without the query's own"
"""After a verdict that does not rest on one token."""
UNSURE = "of the curves as computed: what is left out may change"
"""Before what is said of flatness where something that decides curves is not known."""

if TYPE_CHECKING:
    from posbias.comparison.scores import Agreement, Comparison
    from posbias.profiles.estimate import Estimate
    from posbias.profiles.profile import Profile
    from posbias.simulation import RecencyResult


def describe(profile: "Profile") -> list[str]:
    """A profile for a person: the shape in blocks and the statistics in words."""
    from posbias.profiles.curves import blocks

    s = profile.summary
    first, middle, last = s.ratio
    reach = "token" if s.effective_range == 1 else "tokens"
    shape, verdict = blocks(profile.mass[: profile.query + 1]), verdict_line(profile)
    within = "" if s.reaches_all else f"90 % of the mass within {s.effective_range} {reach} of the query; "
    fitted = " (cross-fitted)" if profile.cross_fitted else ""
    even = "the mean of those in reach" if s.out_of_reach else "uniform"
    same = s.verdict is not None and s.verdict_without_first == s.verdict == s.verdict_without_last
    return [
        *((verdict, shape) if profile.left_out else (shape, verdict)),
        *(s.ends_alone or ([SAME] if same else [])),
        *_told(profile),
        f"share of the first {s.ends}: {s.first_mass:.2%}{_error(profile, 0)}, "
        f"of the last {s.ends}: {s.last_mass:.2%}{_error(profile, s.query + 1 - s.ends)}",
        f"density first : middle : last = {first:.2f} : {middle:.2f} : {last:.2f} (uniform = 1)",
        f"trough at position {s.trough} of 0 … {s.query}, {s.trough_depth:.0%} below {even}{fitted}",
        *([f"out of reach: {s.out_of_reach:,} of {s.tokens:,} positions"] if s.out_of_reach else []),
        f"{within}entropy {s.entropy:.2f} nats",
        *_band(profile),
        *([f"learned sinks took {profile.missing_mass:.2%}"] if profile.missing_mass else []),
        *_engines(profile),
        *(profile.attrs["calibration"].lines() if "calibration" in profile.attrs else ()),
    ]


def _told(profile: "Profile") -> list[str]:
    """What its prompts tell of the verdict and what not; of a prediction nothing."""
    if profile.doubts or profile.samples is None or profile.left_out:
        return profile.doubts
    return [f"{len(profile.samples)} prompts tell of both ends whether they are favoured (95 % intervals)"]


def _error(profile: "Profile", start: int) -> str:
    """The standard error over prompts of the share of as many positions as count as an end, where it is known."""
    share = profile.share(start, start + profile.summary.ends)
    return f" ± {share.se:.2%}" if share.known else ""


def verdict_line(profile: "Profile") -> str:
    """'verdict: U', or why there is none."""
    from posbias.theory.huggingface_layers import UNMEASURED
    from posbias.theory.prediction import said_under

    most, under = profile.attrs["band"].verdict if "band" in profile.attrs else (None, {})
    counted = f" under {said_under(under)}" if under else ""
    if not profile.left_out:
        return f"verdict: {profile.summary.verdict}{counted}"
    if most is not None and all(part[0] == "λ" for part in profile.left_out):
        computed = "" if "λ" in profile.left_out else f"{profile.caveat}; as computed "
        return f"no verdict: {computed}{most}{counted}; --mixing gives λ"
    if any("(the model has" in part for part in profile.left_out):
        settles = "no text of this length fits the model"
    elif "calibration" in profile.attrs:
        here = profile.attrs["calibration"].tokens == profile.tokens
        settles = (
            "`posbias compare` with the measurement tells"
            if here
            else "`posbias measure` at this length tells"
        )
    elif not UNMEASURED.isdisjoint(profile.left_out):
        settles = "such layers cannot be measured, the gradient influence alone can"
    elif any(not part.startswith("λ") for part in profile.left_out):
        known = profile.attrs.get("architecture") == "smollm2-135m"
        settles = f"a measurement tells more: --calibrate {'smollm2-135m' if known else 'FILE.nc'}"
    else:
        settles = "--mixing gives it"
    return f"no verdict: {profile.caveat}; {settles}"


def _band(profile: "Profile") -> list[str]:
    """What would be predicted with the λ of each model whose λ is known."""
    band = profile.attrs.get("band")
    if band is None:
        return []

    def held(models: Sequence[str], end: str) -> str:
        shares = sorted(getattr(band.shapes[name], f"{end}_mass") for name in models)
        span = dict.fromkeys(f"{share:.2%}" for share in (shares[0], shares[-1]))
        return f"the {end} {profile.summary.ends:,} hold {' to '.join(span)}"

    given = {f"with λ of each of {len(band.models)} pretrained models": band.models}
    given |= {f"with λ by norms, of {', '.join(band.checks)},": band.checks}
    lines = (f"{words} {held(models, 'first')}, {held(models, 'last')}" for words, models in given.items())
    return ["; ".join(lines)]


def _engines(profile: "Profile") -> list[str]:
    """How a predicted profile was computed: engines and the layers each took."""
    used = profile.attrs.get("method")
    if not used:
        return []
    layers = [f"{name} ({count} layer{'s' * (count > 1)})" for name, count in used.items()]
    return [f"computed by {', '.join(layers)}"]


def describe_variation(quantity: str, varied: "Sequence[tuple[float, Profile]]") -> list[str]:
    """Many profiles for a person: one line of blocks and a few numbers for each value."""
    from posbias.profiles.curves import blocks

    rows = [
        [
            plain(value),
            blocks(profile.mass[: profile.query + 1], 40),
            profile.summary.verdict or "–",
            f"{profile.summary.first_mass:.1%}",
            f"{profile.summary.last_mass:.1%}",
            str(profile.summary.trough),
            f"{profile.summary.flatness:.3f}",
        ]
        for value, profile in varied
    ]
    head = [quantity, "profile", "verdict", "first 5 %", "last 5 %", "trough", "flatness"]
    flattest, its = max(varied, key=lambda one: one[1].summary.flatness)
    edge = _edge([value for value, _ in varied], flattest)
    said = f"flattest of these: {quantity} {plain(flattest)}, flatness {its.summary.flatness:.3f}{edge}"
    return [
        *table(head, rows),
        "",
        f"{said}{_flattest_under([one for _, one in varied], its)}",
        *_unsure(its),
    ]


def _flattest_under(profiles: "Sequence[Profile]", flattest: "Profile") -> str:
    """Under which of the known λ one is the flattest of several, where λ was not given."""
    from posbias.theory.prediction import flattest_under, said_under

    others = [one for one in profiles if one is not flattest]
    under = flattest_under(flattest, others) if others else {}
    return f"; the flattest under {said_under(under)}" if under else ""


def _unsure(flattest: "Profile") -> list[str]:
    """That something else than λ, of which it is said, may change which is the flattest."""
    return [f"{UNSURE} that"] if any(part != "λ" for part in flattest.left_out) else []


def _edge(values: "Sequence[float]", value: float) -> str:
    """That a value is the least or the most of those tried, so that others may do better."""
    return " (the edge of what was tried)" if len(values) > 2 and value in (min(values), max(values)) else ""


def describe_several(named: "Sequence[tuple[str, Profile]]") -> list[str]:
    """Profiles by name for a person: a line each, then why some have no verdict."""
    from posbias.profiles.curves import blocks
    from posbias.theory.prediction import said_under

    rows = [
        [
            name,
            blocks(profile.mass[: profile.query + 1], 32),
            s.verdict or "–",
            f"{s.first_mass:.1%}",
            f"{s.last_mass:.1%}",
            f"{s.flatness:.3f}",
        ]
        for name, profile in named
        for s in [profile.summary]
    ]
    without: dict[str, list[str]] = {}
    for name, profile in named:
        if profile.left_out:
            without.setdefault(verdict_line(profile), []).append(name)
    head = ["", "profile", "verdict", "first 5 %", "last 5 %", "flatness"]
    more = [f"{name}: {line}" for name, one in named for line in (*one.summary.ends_alone, *_band(one))]
    more += [
        "{flatter} is flatter than {than} under ".format(**one) + said_under(one["under"])
        for one in orders(named)
    ]
    if len(named) > 1 and any(part != "λ" for _, profile in named for part in profile.left_out):
        more.append(f"{UNSURE} the order")
    return [*table(head, rows), *(f"{'; '.join(names)}: {line}" for line, names in without.items()), *more]


def orders(named: "Sequence[tuple[str, Profile]]") -> list[dict[str, Any]]:
    """Each prediction and the next, and whether the first is flatter under each known λ, if λ was not given."""
    from posbias.theory.prediction import flattest_under

    return [
        {"flatter": name, "than": next_, "under": under}
        for (name, one), (next_, other) in itertools.pairwise(named)
        if (under := flattest_under(one, [other]))
    ]


def describe_map(
    axes: "Sequence[tuple[str, Sequence[float]]]", profiles: "Sequence[Sequence[Profile]]"
) -> list[str]:
    """Profiles over two quantities for a person: a table of the shares of both ends, of some columns if many."""
    (rows, down), (columns, across) = axes
    step = -(-len(across) // COLUMNS)
    cells = [
        [
            plain(value),
            *(
                f"{s.first_mass:.1%} {s.last_mass:.1%}{f' {s.verdict}' if s.verdict else ''}"
                for s in (one.summary for one in row[::step])
            ),
        ]
        for value, row in zip(down, profiles, strict=True)
    ]
    left_out = next((one for row in profiles for one in row if one.left_out), None)
    every = f"; every {step}th of {len(across)} columns, all in --json" if step > 1 else ""
    places = [(value, k, one) for value, row in zip(down, profiles, strict=True) for k, one in enumerate(row)]
    verdicts = "" if left_out is not None else ", and the verdict"
    at, k, flattest = max(places, key=lambda place: place[2].summary.flatness)
    return [
        *([verdict_line(left_out)] if left_out is not None else []),
        f"share of the first 5 % and of the last 5 % of the text{verdicts}, {rows} down, {columns} across{every}",
        *table([rows, *map(plain, across[::step])], cells),
        "",
        f"flattest of these: {rows} {plain(at)}{_edge(down, at)}, {columns} {plain(across[k])}"
        f"{_edge(across, across[k])}, flatness {flattest.summary.flatness:.3f}"
        f"{_flattest_under([one for _, _, one in places], flattest)}",
        *_unsure(flattest),
    ]


def _three_digits(score: float) -> str:
    """'2.931', or a dash for what is not there."""
    return f"{score:.3f}" if score == score else "–"


def recency_table(result: "RecencyResult") -> list[str]:
    """What a simulation says: a line for each layer, then what the words mean."""
    scores, last = result.mean_scores.value, result.model.tokens - 1
    answers = zip(
        result.recency_probability, result.adjacency_probability, result.exhibits_recency(), strict=True
    )
    rows = [
        [
            str(layer + 1),
            str(probability),
            str(adjacent),
            definition.verdict,
            " ".join(_three_digits(scores[layer, last, key]) for key in (0, last // 2, last - 1)),
        ]
        for layer, (probability, adjacent, definition) in enumerate(answers)
    ]
    head = [
        "layer",
        "recency probability",
        "adjacency probability",
        "Definition 1",
        "last query's mean scores: first, middle, last key",
    ]
    return [
        *table(head, rows),
        "",
        f"{result.samples:,} samples; ½ is no preference; adjacency: the nearer key is the one before the query",
    ]


def comparison_table(comparison: "Comparison", labels: dict[str, str]) -> list[str]:
    """A comparison as aligned lines: profiles, baselines, what noise allows; then the held-out scores, if any."""
    from posbias.comparison.reliability import PAIRED, ROWS

    rows = [[labels.get(key, key), *_cells(one)] for key, one in comparison.agreements.items()]
    rows += [
        [f"baseline: {BASELINES.get(key, key)}", *_cells(one)] for key, one in comparison.baselines.items()
    ]
    noise, held_out = comparison.reliability, comparison.held_out
    if noise is not None:
        shown = {name: getattr(noise, name) for name in ROWS}
        if comparison.same_prompts is not None:
            shown = {"split_half": noise.split_half, PAIRED: comparison.same_prompts}
        rows += [[ROWS.get(name, name), *_cells(one)] for name, one in shown.items()]
    if held_out is not None:
        rows += [
            [f"held out: {labels.get(key, key)}", *_cells(one)] for key, one in held_out.agreements.items()
        ]
        if noise is not None:
            rows.append(["held out: noise ceiling (estimated)", *_cells(noise.noiseless_half)])
    lines = table(["", "Spearman", "Wasserstein", "Spearman w/o first", "Wasserstein w/o first"], rows)
    return [*lines, *_over_prompts(comparison.prompts)]


def _over_prompts(prompts: int | None) -> list[str]:
    """What the intervals are over, or why there are none."""
    from posbias.profiles.agreement import LEAST_PROMPTS

    if prompts is None:
        return []
    if prompts < LEAST_PROMPTS:
        return [f"no intervals: {prompts} prompt{'s' * (prompts > 1)}, at least {LEAST_PROMPTS} needed"]
    return [f"in brackets: 95 % intervals over {prompts} prompts"]


def _cells(agreement: "Agreement") -> list[str]:
    scores = agreement.spearman, agreement.wasserstein
    scores += agreement.spearman_without_first, agreement.wasserstein_without_first
    return [_score(score, digits) for score, digits in zip(scores, (2, 3, 2, 3), strict=True)]


def _score(score: "Estimate", digits: int) -> str:
    if score.value != score.value:
        return "–"
    around = f" [{score.interval[0]:.{digits}f}, {score.interval[1]:.{digits}f}]" if score.bounds else ""
    return f"{score.value:.{digits}f}{around}"
