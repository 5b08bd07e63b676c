"""Studies: a question, what varies, and cells whose results are kept; on one core or many machines.

    from posbias.study import read_study, run_study, judge

    outcome = run_study(read_study("dimension.toml"), "results/studies/dimension")
    for claim in judge(outcome):
        print(claim)

`value` says what a study is, `verbs` what its cells do, `running` computes and judges; `docs/study.md`
explains.
"""

from posbias.profiles.claims import Judged
from posbias.study.running import Outcome, StudyError, judge, run_study, status
from posbias.study.tables import csv_text, rows
from posbias.study.value import Cell, StatedClaim, Study, read_study, study
from posbias.study.verbs import VERBS, Measure, Predict, Simulate, Train

__all__ = [
    "VERBS",
    "Cell",
    "Judged",
    "Measure",
    "Outcome",
    "Predict",
    "Simulate",
    "StatedClaim",
    "Study",
    "StudyError",
    "Train",
    "csv_text",
    "judge",
    "read_study",
    "rows",
    "run_study",
    "status",
    "study",
]
