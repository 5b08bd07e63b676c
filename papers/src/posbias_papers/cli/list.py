"""`posbias paper list`: what can be made, what it costs, and whether it is there."""

from posbias.cli import options as shared
from posbias.cli.output import answer_with
from posbias.core.text_tables import table


def list_(*papers: str, out: shared.Results = shared.RESULTS, json: shared.Json = False) -> None:
    """List every figure, table and set of statements of the three papers: cost and state of each.

    The state is of what was made in --out, or of recorded results, which come along, if these are of more effort.

    Parameters
    ----------
    papers
        wu2025, herasimchyk2026, kim2026, or single studies such as wu2025/fig2. Default: all.
    """
    from posbias_papers.cli.answers import PaperList, StudyPart
    from posbias_papers.registry import find_studies

    studies = [(study, study.state(out)) for study in find_studies(papers)]
    records = [StudyPart.of(study, state=state) for study, state in studies]
    head = ["study", "what it shows", "printed", "quick", "full", "effort", f"in {out}"]
    rows = [
        [
            study.key,
            study.title,
            f"{len(study.expected)} numbers" if study.expected else "–",
            str(study.quick),
            str(study.full),
            study.unit,
            "cannot be used" if state.damaged else str(state),
        ]
        for study, state in studies
    ]
    damaged = [
        f"{state.damaged}; {study.made_by}" for study, state in studies if state.damaged and not study.parts
    ]
    lines = [
        *table(head, rows),
        "",
        f"costs on {studies[0][0].quick.machine}, nothing being there yet",
        *damaged,
    ]
    answer_with(PaperList.of(studies=records), lambda: lines, json)
