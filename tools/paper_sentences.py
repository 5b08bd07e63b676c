"""Write what the papers' records say, in three sentences a paper, and the table of verdicts, into docs/papers.md.

python tools/paper_sentences.py
"""

import re
import tempfile
from pathlib import Path

from posbias.core.sources import cite
from posbias_papers.results import by_evidence, by_paper, collect, rests_on, sentences

PAGE = Path(__file__).parents[1] / "docs" / "papers.md"


def parts(claims: list) -> dict[str, str]:
    """The text of each part of the page that is made from the record, by the word of its marks."""
    said, rows = [], ["| paper | tested on | hold | fail | undecided |", "|---|---|---|---|---|"]
    for paper, own in by_paper(claims).items():
        said += [f"**{cite(paper).short}**", ""]
        for text, one in sentences(own):
            whose = "Our" if one.claim.provenance == "ours" else "The"
            said.append(f"- {text} {whose} claim *{one.mark}*; {rests_on(one)} (`{one.id}`)")
        said.append("")
        name = cite(paper).short.partition(" (")[0]
        for kind, counts in by_evidence(own).items():
            rows.append(f"| {name} | {kind} | {' | '.join(map(str, counts.values()))} |")
    return {"sentences": "\n".join(said).rstrip(), "verdicts": "\n".join(rows)}


def page(claims: list) -> str:
    """docs/papers.md with these parts."""
    text = PAGE.read_text("utf-8")
    for name, part in parts(claims).items():
        marks = rf"(?s)(<!-- {name} -->\n\n).*?(\n\n<!-- end of {name} -->)"
        text = re.sub(marks, lambda found, part=part: f"{found[1]}{part}{found[2]}", text)
    return text


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(page(collect(folder)), "utf-8")
