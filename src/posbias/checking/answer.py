"""What a check answers: in JSON, in words, as Markdown for a pull request, as XML for JUnit's readers."""

from typing import Literal

from pydantic import computed_field

from posbias.checking.boundaries import ABOVE, ALPHA, POWER, UNDECIDED, WITHIN
from posbias.core.answers import Answer, Number, OverPrompts, Part, Texts, entry
from posbias.profiles.estimate import about

VERDICTS = {WITHIN: "within", ABOVE: "above", UNDECIDED: "undecided"}


class Gap(Part):
    """A gap, or the share of flips; and what it surely is at least and at most, over all looks: its size, with a
    baseline how much larger it is than there."""

    value: OverPrompts = entry("with a 95 % interval of its own")
    before: Number = entry("in the baseline; null without")
    at_least: float = entry("all gaps together")
    at_most: float = entry("each by itself, since all must pass")
    verdict: Literal["within", "above", "undecided"]


class Check(Answer):
    """Whether position matters by more than a limit, as far as the questions tell."""

    model: str
    status: Literal[0, 1, 4] = entry("0: every gap is within the limit, 1: one is above, 4: undecided")
    limit: Number = entry("null: none was set")
    questions: int = entry("asked about")
    available: int
    kept: int = entry("answers in the folder that earlier runs asked for")
    looks: list[int] = entry("after how many questions answers are looked at")
    gaps: dict[str, Gap]
    needed: int | None = entry("of an undecided check, questions that would do; 10001: more", None)
    detectable: float = entry("the least gap that these questions show in 80 % of runs")
    paired: bool | None = entry("whether the baseline has the same questions; null without")
    doubts: Texts = entry("why the answers say nothing of places")

    @property
    def headline(self) -> str:
        """The decision in a line."""
        what = "share of flips" if "flips" in self.gaps else "gap"
        limit = f"{what} {'above' if self.paired is None else 'larger than before by more than'} {self.limit}"
        if self.status != UNDECIDED:
            return f"no {limit}" if self.status == WITHIN else limit
        if self.doubts:
            return f"undecided: {self.doubts[0]}"
        if self.needed is None:
            return (
                f"no limit given: {self.questions} questions show a {what} of {self.detectable:.2f} or more"
            )
        if self.needed > self.questions:
            return f"not enough questions: {about(self.needed)} would do"
        return f"undecided: a {what} so near {self.limit} takes more questions"

    @computed_field(description="in sentences")
    @property
    def answer(self) -> Texts:
        """The answer in words: the decision, then what it rests on."""
        asked = f"asked about {self.questions} of {self.available} questions"
        level = f"; wrong in at most {ALPHA:.0%} of runs" * (self.status != UNDECIDED)
        lines = [f"{self.model}: {self.headline}", asked + level]
        if self.kept:
            lines.append(f"{self.kept:,} answers in the folder are of earlier runs: another --out asks anew")
        if self.needed and self.limit:
            both = f"no gap passes and one of {2 * self.limit:g} fails, each in {POWER:.0%} of runs"
            lines.append(f"with {about(self.needed)} questions {both}")
        if self.paired is not None:
            lines.append(f"the baseline has {'the same' if self.paired else 'other'} questions")
        return lines

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Head and rows of a table of the gaps."""
        rows = []
        for name, gap in self.gaps.items():
            numbers = (gap.value.value, gap.before, gap.at_least, gap.at_most)
            rows.append([name, *("–" if one is None else f"{one:.2f}" for one in numbers), gap.verdict])
        return ["gap", "now", "before", "at least", "at most", "verdict"], rows

    def markdown(self) -> str:
        """The answer for a pull request."""
        head, rows = self.table()
        lines = [f"### posbias check: {self.headline}", "", *(f"- {line}" for line in self.answer[1:]), ""]
        return "\n".join(
            [*lines, *(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)), ""]
        )

    def junit(self) -> str:
        """The answer as XML that readers of JUnit's results know, a test case for each gap."""
        from xml.etree import ElementTree as Xml

        kinds = {"above": "failure", "undecided": "error" if self.status == UNDECIDED else "skipped"}
        suite = Xml.Element("testsuite", name="posbias check", tests=str(len(self.gaps)))
        for name, gap in self.gaps.items():
            case = Xml.SubElement(suite, "testcase", classname=f"posbias.{self.model}", name=name)
            if gap.verdict in kinds:
                said = f"{self.headline}; {name} is at least {gap.at_least:.2f}, at most {gap.at_most:.2f}"
                Xml.SubElement(case, kinds[gap.verdict], message=said)
        for kind in kinds.values():
            suite.set(f"{kind}s".replace("skippeds", "skipped"), str(len([*suite.iter(kind)])))
        return Xml.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
