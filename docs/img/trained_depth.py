"""Does depth add to the bias? Curves and tables of docs/train.md, from the cells of Figure 2 on record."""

from posbias.profiles.estimate import Estimate
from posbias.reports.plots import save_figure
from posbias_papers.claims import judge
from posbias_papers.contrasts import RELATIVE
from posbias_papers.wu2025.drawing import draw_curves
from posbias_papers.wu2025.figures import CLAIMS
from posbias_papers.wu2025.outcomes import records
from posbias_papers.wu2025.settings import EMBEDDINGS, Setting, effort_of
from posbias_papers.wu2025.table import table

DEPTHS = 2, 4, 6
KINDS = [(word, residual) for residual in (False, True) for word in RELATIVE]
CELLS = [Setting(depth, residual, positional=word) for word, residual in KINDS for depth in DEPTHS]


def named(word, residual):
    return RELATIVE[word] + (", residual" if residual else "")


def gap(outcome):
    learnt = outcome.of("first-last")
    found = Estimate.of_mean(learnt) if len(learnt) else "–"
    return f"{found} ({outcome.accuracy.mean():.2f}, {len(learnt)})"


def within(evidence):
    """An estimate with its 95 % interval, and where it was taken."""
    if evidence.flaw:
        return evidence.flaw
    low, high = evidence.estimate.interval
    return f"{evidence.estimate.value:+.3f} [{low:+.3f}, {high:+.3f}] {evidence.where}"


asked = {"fig2": (2, 16, 17), "curves": (1, 2, 3, 4, 5, 6)}
for embedding, words in EMBEDDINGS.items():
    early, late = (records(effort_of(n, 3, embedding=embedding), CELLS) for n in (25_000, 100_000))
    known = late if len(late) == len(CELLS) else early
    if known is late:
        save_figure(draw_curves(table(known, known), ""), "trained_depth.png")
    print(f"\n{words}: gap first-last (accuracy, networks) by depth")
    for word, residual in KINDS:
        cells = [Setting(depth, residual, positional=word) for depth in DEPTHS]
        print(f"{named(word, residual):24}", *(gap(known[one]) for one in cells), sep=" | ")
    print("\ndepth 6 less 2: as it is, relative to accuracy, at equal accuracy and loss; whether settled")
    for name, numbers in asked.items():
        for claim in CLAIMS[name]:
            if int(claim.id.rpartition("/")[2]) in numbers:
                print(claim.sentence, *map(within, judge(claim, table(known, CELLS)).evidence), sep="\n    ")
    print("\nafter 25,000 and 100,000 iterations")
    for cell, outcome in late.items():
        print(
            f"{named(cell.positional, cell.residual):24}",
            cell.depth,
            gap(early[cell]),
            gap(outcome),
            sep=" | ",
        )
    print("\nsink metric (tau .2) of the first token: trained, even, untrained; the token with the largest")
    for cell, outcome in known.items():
        trained, untrained = (one[outcome.learnt] for one in (outcome.sinks, outcome.untrained))
        numbers = (trained[:, 0].mean(), outcome.even[0], untrained[:, 0].mean()) if len(trained) else ()
        shown = ", ".join(f"{number:.3f}" for number in numbers)
        strongest = trained.mean(axis=0).argmax() if len(trained) else "–"
        print(f"{named(cell.positional, cell.residual):24}", cell.depth, shown, strongest, sep=" | ")
