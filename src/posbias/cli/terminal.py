"""Several profiles as text for a terminal: a table with a line of blocks each. One is `profile_sentences`'."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posbias.core.terminal import plain, table

if TYPE_CHECKING:
    from posbias.comparison.scores import Comparison
    from posbias.profiles.profile import Profile
    from posbias.theory.cache import Cache
    from posbias.theory.prediction import Decision

COLUMNS = 8
"""Of a table over two quantities."""
UNSURE = "of the curves as computed: what is left out may change"
"""Before what is said of flatness where something that decides curves is not known."""


def _profiles_table(
    title: str, named: "Sequence[tuple[str, Profile]]", caches: "Sequence[Cache]" = ()
) -> list[str]:
    """A line of blocks and a few numbers for each profile, with what each keeps in its cache."""
    from posbias.profiles.curves import blocks
    from posbias.theory.cache import gigabytes

    head = [title, "profile", "verdict", "first 5 %", "middle half", "last 5 %", "trough", "flatness"]
    costs = [[gigabytes(one.size), f"{one.read:,}"] for one in caches] or [[]] * len(named)
    head += ["KV cache", "keys read per token"] * bool(caches)
    rows = [
        [
            name,
            blocks(one.mass[: one.query + 1], 32),
            s.verdict or "–",
            f"{s.first_mass:.1%}",
            f"{s.middle_mass:.1%}",
            f"{s.last_mass:.1%}",
            str(s.trough),
            f"{s.flatness:.3f}",
            *cost,
        ]
        for (name, one), cost in zip(named, costs, strict=True)
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
    from posbias.reports.profile_sentences import verdict_line

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


def describe_several(decision: "Decision") -> list[str]:
    """Several predictions for a person: which keeps the middle, a line each, all under each λ, what is unknown."""
    from posbias.reports.profile_sentences import verdict_line

    named, caches = list(decision.profiles.items()), list(decision.caches.values())
    without: dict[str, list[str]] = {}
    for name, profile in named:
        if profile.left_out:
            without.setdefault(verdict_line(profile), []).append(name)
    lines = [f"{'; '.join(names)}: {line}" for line, names in without.items()]
    lines += [f"{name}: {line}" for name, one in named for line in one.summary.ends_alone]
    return [*str(decision).split("\n"), "", *_profiles_table("", named, caches), *lines]


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
