"""Does depth add to the bias? Curves and tables of docs/depth.md, from the cells of Figure 2 on record."""

from posbias.reports.plots import save_figure
from posbias_papers.wu2025 import quantities
from posbias_papers.wu2025.drawing import draw_curves
from posbias_papers.wu2025.outcomes import outcome_of
from posbias_papers.wu2025.recorded import records
from posbias_papers.wu2025.settings import RELATIVE, Setting, effort_of

DEPTHS = 2, 4, 6
KINDS = [(word, residual) for residual in (False, True) for word in RELATIVE]
CELLS = [Setting(depth, residual, positional=word) for word, residual in KINDS for depth in DEPTHS]


def named(word, residual):
    return RELATIVE[word] + (", residual" if residual else "")


def gap(outcome):
    found = quantities.signed("", outcome.gaps, "first-last").estimate
    return f"{found} ({outcome.gaps.accuracy.mean():.2f}, {len(outcome.gaps.of('first-last'))})"


def within(evidence):
    """An estimate with its 95 % interval, and where it was taken."""
    if evidence.flaw:
        return evidence.flaw
    low, high = evidence.estimate.interval
    return f"{evidence.estimate.value:+.3f} [{low:+.3f}, {high:+.3f}] {evidence.where}"


def outcomes(iterations):
    return {
        cell: outcome_of(record.cell) for cell, record in records(effort_of(iterations, 3, 0), CELLS).items()
    }


known, longer = outcomes(25_000), outcomes(100_000)
save_figure(draw_curves(known), "trained_depth.png")
print("gap first-last (accuracy, networks) by depth")
for word, residual in KINDS:
    print(
        f"{named(word, residual):24}",
        *(gap(known[Setting(d, residual, positional=word)]) for d in DEPTHS),
        sep=" | ",
    )
print("\ndepth 6 minus depth 2: as it is, relative to accuracy, at equal accuracy, at equal loss")
for word, residual in KINDS:
    shallow, *_, deep = (known[Setting(depth, residual, positional=word)] for depth in DEPTHS)
    found = (
        quantities.rises("", deep.gaps, shallow.gaps),
        quantities.relative("", deep.gaps, shallow.gaps),
        quantities.equally_accurate("", deep.trained, shallow.trained),
        quantities.equally_low("", deep.trained, shallow.trained),
    )
    print(named(word, residual), *map(within, found), sep="\n    ")
print("\ndepth 2 after 25,000 and 100,000 iterations, and how much the gap changed over the last third")
for cell, outcome in longer.items():
    settled = within(quantities.settled("", outcome.trained, "first-last"))
    print(f"{named(cell.positional, cell.residual):24}", gap(known[cell]), gap(outcome), settled, sep=" | ")
print(
    "\nsink metric (tau .2) of the first token: trained, even attention, untrained; the token with the largest"
)
for cell, outcome in known.items():
    sinks = outcome.sinks
    numbers = (sinks.trained[:, 0].mean(), sinks.uniform[0], sinks.untrained[:, 0].mean())
    shown = ", ".join(f"{number:.3f}" for number in numbers)
    print(
        f"{named(cell.positional, cell.residual):24}",
        cell.depth,
        shown,
        sinks.trained.mean(axis=0).argmax(),
        sep=" | ",
    )
