"""What remedies change as an answer: its JSON, and tables as lines of text."""

from collections.abc import Mapping
from pathlib import Path

from posbias.core.matching import TOKENS_A_WORD
from posbias.core.progress import one_line
from posbias.core.terminal import table
from posbias.profiles.gaps import MEAN
from posbias.remedies.run import PLAIN, RemedyResult
from posbias.remedies.values import ABOUT
from posbias.reports import answers


def of_remedies(found: Mapping[str, RemedyResult], folder: Path) -> tuple[answers.Remedy, list[str]]:
    """The answer and its lines: places and costs, then what is before and after."""
    plain, treated, rows, changes, bounds = found[PLAIN].places, [], [], [], []
    for one in found.values():
        arms = {arm: one.places.overall[arm] for arm in one.places.arms}
        treated.append(answers.Treated.of(one, source=ABOUT[one.name]["source"], controls=arms))
        costs = f"{one.requests:.3g}", f"{one.words * TOKENS_A_WORD:,.0f}", f"{one.seconds:.2g}"
        rows.append([one.name, *(f"{held.value:.2f}" for held in one.curve), *costs, one.effect])
        before, after = (each.deciding | {MEAN: each.overall[each.measures]} for each in (plain, one.places))
        for name, change in one.change.items():
            shown = "{:+.2f} [{:+.2f}, {:+.2f}]".format(change.value, *change.interval)
            changes.append([one.name, name, *(f"{side[name].value:+.2f}" for side in (before, after)), shown])
        if one.change and one.effect in ("no difference", "inconclusive"):
            bounds.append(f"{one.name} changes no gap by more than {one.at_most:.2f}")
    places = [f"{depth:.2g}" for depth in plain.depth]
    head = [plain.measures, *places, *["requests", "tokens", "seconds", "effect"]]
    lines = [*table(head, rows), "", *table(["remedy", "gap", "before", "after", "change"], changes), ""]
    lines += [one_line(f"{PLAIN}: {plain.verdict_in_words}", None), *bounds, f"answers: {folder}"]
    return answers.Remedy.of(folder=folder, measures=plain.measures, remedies=treated), lines
