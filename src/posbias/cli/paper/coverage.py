"""`posbias paper coverage`: what the papers contain, and what of it is covered."""

from posbias.cli import options as shared
from posbias.cli.output import answer_with


def coverage(*papers: str, left: bool = False, json: shared.Json = False) -> None:
    """List all that the three papers contain, with the command that shows it and the claims that judge it.

    Parameters
    ----------
    papers
        wu2025, herasimchyk2026 or kim2026. Default: all.
    left
        Only what is not covered whole, and what is missing of it.
    """
    from posbias.papers import PAPERS
    from posbias.papers.coverage import entry, items, tally, told

    listed = items(papers or PAPERS)
    shown = [item for item in listed if not left or item.covered != "whole"]
    counts = tally(listed)
    lines = [*map(entry, shown), *(f"{paper}: {told(count)}" for paper, count in counts.items())]
    answer = {"items": [item.as_dict() for item in shown], "counts": counts}
    answer_with("paper-coverage/1", answer, lambda: lines, json)
