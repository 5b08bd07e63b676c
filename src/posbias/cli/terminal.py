"""Profiles as text for a terminal: one in blocks and words, several as a table with a line of blocks each."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from posbias.core.terminal import plain, table

if TYPE_CHECKING:
    from posbias.comparison.scores import Comparison
    from posbias.profiles.profile import Profile

COLUMNS = 8
"""Of a table over two quantities."""
SAME = "the same without the first token, and without the query's own"
"""After a verdict that does not rest on one token."""
UNSURE = "of the curves as computed: what is left out may change"
"""Before what is said of flatness where something that decides curves is not known."""


def describe(profile: "Profile") -> list[str]:
    """A profile for a person: the shape in blocks and the statistics in words."""
    from posbias.profiles.curves import blocks

    s = profile.summary
    first, middle, last = s.ratio
    shape, verdict = blocks(profile.mass[: profile.query + 1]), verdict_line(profile)
    within = "" if s.reaches_all else f"90 % of the mass within {s.effective_range} tokens of the query; "
    even = "the mean of those in reach" if s.out_of_reach else "uniform"
    same = s.verdict is not None and s.verdict_without_first == s.verdict == s.verdict_without_last
    prompts = 0 if profile.samples is None or profile.left_out else len(profile.samples)
    sure = (
        [f"{prompts} prompts decide for both ends whether they are favoured (95 % intervals)"]
        if prompts
        else []
    )
    lines = [verdict, shape] if profile.left_out else [shape, verdict]
    lines += [*(s.ends_alone or [SAME] * same), *(profile.doubts or sure)]
    lines.append(
        f"share of the first {s.ends}: {s.first_mass:.2%}{_error(profile, 0)}, "
        f"of the last {s.ends}: {s.last_mass:.2%}{_error(profile, s.query + 1 - s.ends)}"
    )
    lines.append(f"density first : middle : last = {first:.2f} : {middle:.2f} : {last:.2f} (uniform = 1)")
    fitted = " (cross-fitted)" if profile.cross_fitted else ""
    lines.append(f"trough at position {s.trough} of 0 … {s.query}, {s.trough_depth:.0%} below {even}{fitted}")
    if s.out_of_reach:
        lines.append(f"out of reach: {s.out_of_reach:,} of {s.tokens:,} positions")
    lines.append(f"{within}entropy {s.entropy:.2f} nats")
    lines += _band(profile)
    if profile.missing_mass:
        lines.append(f"learned sinks took {profile.missing_mass:.2%}")
    if profile.method:
        layers = (f"{name} ({count} layer{'s' * (count > 1)})" for name, count in profile.method.items())
        lines.append(f"computed by {', '.join(layers)}")
    return [*lines, *(profile.calibration.lines() if profile.calibration else ())]


def _error(profile: "Profile", start: int) -> str:
    """The standard error over prompts of the share of as many positions as count as an end, where it is known."""
    share = profile.share(start, start + profile.summary.ends)
    return f" ± {share.se:.2%}" if share.known else ""


def verdict_line(profile: "Profile") -> str:
    """'verdict: U', or why there is none and what would settle it."""
    from posbias.theory.huggingface_families import UNMEASURED
    from posbias.theory.prediction import said_under

    most, under = profile.band.verdict if profile.band else (None, {})
    counted = f" under {said_under(under)}" if under else ""
    if not profile.left_out:
        return f"verdict: {profile.summary.verdict}{counted}"
    others = [part for part in profile.left_out if not part.startswith("λ")]
    if most is not None and not others:
        computed = "" if "λ" in profile.left_out else f"{profile.caveat}; as computed "
        return f"no verdict: {computed}{most}{counted}; --mixing gives λ"
    if not UNMEASURED.isdisjoint(others) or any("(the model has" in part for part in others):
        return f"no verdict: {profile.caveat}"
    settles = (
        "`posbias measure` at this length decides"
        if profile.calibration
        else "--calibrate FILE.nc takes it from a measurement"
    )
    return f"no verdict: {profile.caveat}; {settles if others else '--mixing gives it'}"


def _band(profile: "Profile") -> list[str]:
    """What would be predicted with the λ of each model whose λ is known, if λ was not given."""
    band, ends = profile.band, profile.summary.ends
    if band is None:
        return []

    def held(models: Sequence[str], end: str) -> str:
        shares = sorted(getattr(band.shapes[name], f"{end}_mass") for name in models)
        span = dict.fromkeys(f"{share:.2%}" for share in (shares[0], shares[-1]))
        return f"the {end} {ends:,} hold {' to '.join(span)}"

    given = {f"with λ of each of {len(band.models)} pretrained models": band.models}
    given |= {f"with λ by norms, of {', '.join(band.checks)},": band.checks} if band.checks else {}
    return ["; ".join(f"{words} {held(of, 'first')}, {held(of, 'last')}" for words, of in given.items())]


def _profiles_table(title: str, named: "Sequence[tuple[str, Profile]]") -> list[str]:
    """A line of blocks and a few numbers for each profile."""
    from posbias.profiles.curves import blocks

    head = [title, "profile", "verdict", "first 5 %", "last 5 %", "trough", "flatness"]
    rows = [
        [
            name,
            blocks(one.mass[: one.query + 1], 32),
            s.verdict or "–",
            f"{s.first_mass:.1%}",
            f"{s.last_mass:.1%}",
            str(s.trough),
            f"{s.flatness:.3f}",
        ]
        for name, one in named
        for s in [one.summary]
    ]
    return table(head, rows)


def describe_variation(quantity: str, varied: "Sequence[tuple[float, Profile]]") -> list[str]:
    """Many profiles for a person: a line for each value, and which is the flattest."""
    lines = _profiles_table(quantity, [(plain(value), profile) for value, profile in varied])
    return [*lines, "", *_flattest([([value], profile) for value, profile in varied], [quantity])]


def describe_map(
    axes: "Sequence[tuple[str, Sequence[float]]]", profiles: "Sequence[Sequence[Profile]]"
) -> list[str]:
    """Profiles over two quantities for a person: a table of the shares of both ends, of some columns if many."""
    (rows, down), (columns, across) = axes
    step = -(-len(across) // COLUMNS)

    def cell(profile: "Profile") -> str:
        s = profile.summary
        return f"{s.first_mass:.1%} {s.last_mass:.1%} {s.verdict or ''}".rstrip()

    cells = [[plain(value), *map(cell, row[::step])] for value, row in zip(down, profiles, strict=True)]
    places = [
        ([value, other], one)
        for value, row in zip(down, profiles, strict=True)
        for other, one in zip(across, row, strict=True)
    ]
    left_out = next((one for _, one in places if one.left_out), None)
    every = f"; every {step}th of {len(across)} columns, all in --json" if step > 1 else ""
    verdicts = "" if left_out is not None else ", and the verdict"
    return [
        *([verdict_line(left_out)] if left_out is not None else []),
        f"share of the first 5 % and of the last 5 % of the text{verdicts}, {rows} down, {columns} across{every}",
        *table([rows, *map(plain, across[::step])], cells),
        "",
        *_flattest(places, [rows, columns]),
    ]


def _flattest(places: "Sequence[tuple[list[float], Profile]]", names: Sequence[str]) -> list[str]:
    """Which of many is the flattest, whether at an edge of what was tried, and under which known λ."""
    from posbias.theory.prediction import flattest_under, said_under

    at, profile = max(places, key=lambda one: one[1].summary.flatness)
    tried = [[values[k] for values, _ in places] for k in range(len(names))]
    said = ", ".join(
        f"{name} {plain(value)}"
        + (" (the edge of what was tried)" if len(set(all_)) > 2 and value in (min(all_), max(all_)) else "")
        for name, value, all_ in zip(names, at, tried, strict=True)
    )
    others = [one for _, one in places if one is not profile]
    under = flattest_under(profile, others) if others else {}
    line = f"flattest of these: {said}, flatness {profile.summary.flatness:.3f}"
    unsure = [f"{UNSURE} that"] if any(part != "λ" for part in profile.left_out) else []
    return [f"{line}; the flattest under {said_under(under)}" if under else line, *unsure]


def describe_several(named: "Sequence[tuple[str, Profile]]") -> list[str]:
    """Profiles by name for a person: a line each, then why some have no verdict."""
    from posbias.theory.prediction import said_under

    without: dict[str, list[str]] = {}
    for name, profile in named:
        if profile.left_out:
            without.setdefault(verdict_line(profile), []).append(name)
    lines = [f"{'; '.join(names)}: {line}" for line, names in without.items()]
    lines += [f"{name}: {line}" for name, one in named for line in (*one.summary.ends_alone, *_band(one))]
    lines += [
        f"{one['flatter']} is flatter than {one['than']} under {said_under(one['under'])}"
        for one in orders(named)
    ]
    if len(named) > 1 and any(part != "λ" for _, profile in named for part in profile.left_out):
        lines.append(f"{UNSURE} the order")
    return [*_profiles_table("", named), *lines]


def orders(named: "Sequence[tuple[str, Profile]]") -> list[dict[str, Any]]:
    """Each prediction and the next, and whether the first is flatter under each known λ, if λ was not given."""
    from posbias.theory.prediction import flattest_under

    return [
        {"flatter": name, "than": next_, "under": under}
        for (name, one), (next_, other) in itertools.pairwise(named)
        if (under := flattest_under(one, [other]))
    ]


def comparison_table(comparison: "Comparison", names: dict[str, str]) -> list[str]:
    """A comparison as aligned lines: profiles, baselines, what noise allows; then the held-out scores, if any."""
    from posbias.profiles.summary import LEAST_PROMPTS
    from posbias.reports import tables

    rows = [
        ("baseline: " * (row.kind == "baseline") + row.name, row) for row in tables.scores(comparison, names)
    ]
    rows += [(f"held out: {row.name}", row) for row in tables.held_out(comparison)]
    head = ["", "Spearman", "Wasserstein", "Spearman w/o first", "Wasserstein w/o first"]
    lines = table(head, [[name, *map(str, row.cells)] for name, row in rows])
    prompts = comparison.prompts
    if prompts is None:
        return lines
    if prompts < LEAST_PROMPTS:
        return [
            *lines,
            f"no intervals: {prompts} prompt{'s' * (prompts > 1)}, at least {LEAST_PROMPTS} needed",
        ]
    return [*lines, f"in brackets: 95 % intervals over {prompts} prompts"]
