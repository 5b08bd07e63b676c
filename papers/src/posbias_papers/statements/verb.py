"""`kind = "verify"` of a study: a numbered statement tried."""

import math
from typing import Literal

from posbias.core.progress import OnEvent
from posbias.core.spec import Count, tag, value
from posbias.study.quantities import quantity
from posbias.study.verbs import Found
from posbias_papers.statements import find_statement, verify


@value
class Verify:
    """Try a numbered statement of the papers on `instances` random and adversarial instances.

    `statement` is a key of `posbias verify`, such as wu-4.1. The least slack is exact for the instances drawn; the
    seed draws them. Raises `InvalidValueError` for an unknown statement.
    """

    statement: str
    instances: Count = 200
    kind: Literal["verify"] = tag(default="verify")

    main = ("holds", "slack", "amended_holds", "amended_slack")
    quantities = (*main, "instances")
    packages = ("scipy",)
    draws = True

    def __post_init__(self):
        find_statement(self.statement)

    def perform(self, seed: int, cores: int, on_event: OnEvent) -> Found:
        """The least slack of a statement over the instances drawn, as printed and as amended."""
        (finding,) = verify([find_statement(self.statement)], instances=self.instances, seed=seed)
        found = {"instances": quantity(finding.as_printed.instances)}
        for before, trial in (("", finding.as_printed), ("amended_", finding.corrected)):
            holds, slack = (trial.verdict == "holds", trial.slack) if trial else (math.nan, math.nan)
            found |= {f"{before}holds": quantity(holds), f"{before}slack": quantity(slack)}
        statement = finding.statement
        about = {"verdict": finding.verdict, "statement": statement.name, "note": statement.note}
        return found, about
