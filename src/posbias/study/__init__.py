"""Studies: a question, what varies, and cells whose results are kept; on one core or many machines.

    from posbias.study import read_study, run_study, judge

    outcome = run_study(read_study("dimension.toml"), "results/studies/dimension")
    for claim in judge(outcome):
        print(claim)

`value` says what a study is, `verbs` what its cells do, `records` how results are kept; `docs/studies.md`
explains.
"""

from posbias.profiles.claims import Judged
from posbias.study.claimed import StatedClaim
from posbias.study.judging import judge
from posbias.study.records import Record, load_record
from posbias.study.running import Outcome, StudyError, run_study, status
from posbias.study.tables import csv_text, rows
from posbias.study.value import Cell, Study, read_study, study
from posbias.study.verbs import VERBS, Measure, Predict, Simulate, Train

__all__ = [
    "VERBS",
    "Cell",
    "Judged",
    "Measure",
    "Outcome",
    "Predict",
    "Record",
    "Simulate",
    "StatedClaim",
    "Study",
    "StudyError",
    "Train",
    "csv_text",
    "judge",
    "load_record",
    "read_study",
    "rows",
    "run_study",
    "status",
    "study",
]
