"""Does depth add to the bias? Curves and tables of docs/train.md, from the cells of Figure 2 on record."""

from posbias.profiles.claims import judge
from posbias.profiles.estimate import Estimate
from posbias.reports.plots import save_figure
from posbias_papers.wu2025.drawing import draw_curves
from posbias_papers.wu2025.figures import CLAIMS
from posbias_papers.wu2025.outcomes import records
from posbias_papers.wu2025.settings import RELATIVE, Setting, effort_of
from posbias_papers.wu2025.table import table

DEPTHS = 2, 4, 6
KINDS = [(word, residual) for residual in (False, True) for word in RELATIVE]
CELLS = [Setting(depth, residual, positional=word) for word, residual in KINDS for depth in DEPTHS]


def named(word, residual):
    return RELATIVE[word] + (", residual" if residual else "")


def gap(outcome):
    found = Estimate.of_mean(outcome.of("first-last"))
    return f"{found} ({outcome.accuracy.mean():.2f}, {len(outcome.of('first-last'))})"


def within(evidence):
    """An estimate with its 95 % interval, and where it was taken."""
    if evidence.flaw:
        return evidence.flaw
    low, high = evidence.estimate.interval
    return f"{evidence.estimate.value:+.3f} [{low:+.3f}, {high:+.3f}] {evidence.where}"


def outcomes(iterations):
    return records(effort_of(iterations, 3), CELLS)


known, longer = outcomes(25_000), outcomes(100_000)
save_figure(draw_curves(table(known, known), ""), "trained_depth.png")
print("gap first-last (accuracy, networks) by depth")
for word, residual in KINDS:
    print(
        f"{named(word, residual):24}",
        *(gap(known[Setting(d, residual, positional=word)]) for d in DEPTHS),
        sep=" | ",
    )
print(
    "\ndepth 6 less 2: as it is, relative to accuracy, at equal accuracy, at equal loss; and whether settled"
)
asked = {"fig2": (2, 16, 17), "curves": (1, 2, 3, 4, 5, 6)}
for name, numbers in asked.items():
    for claim in CLAIMS[name]:
        if int(claim.id.rpartition("/")[2]) in numbers:
            print(claim.sentence, *map(within, judge(claim, table(known, CELLS)).evidence), sep="\n    ")
print("\ndepth 2 after 25,000 and 100,000 iterations")
for cell, outcome in longer.items():
    print(f"{named(cell.positional, cell.residual):24}", gap(known[cell]), gap(outcome), sep=" | ")
print(
    "\nsink metric (tau .2) of the first token: trained, even attention, untrained; the token with the largest"
)
for cell, outcome in known.items():
    trained, untrained = (one[outcome.learnt] for one in (outcome.sinks, outcome.untrained))
    numbers = (trained[:, 0].mean(), outcome.even[0], untrained[:, 0].mean())
    shown = ", ".join(f"{number:.3f}" for number in numbers)
    print(
        f"{named(cell.positional, cell.residual):24}",
        cell.depth,
        shown,
        trained.mean(axis=0).argmax(),
        sep=" | ",
    )
