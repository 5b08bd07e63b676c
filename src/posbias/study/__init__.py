"""Studies: a question, what varies, and cells whose results are kept; on one core or many machines.

    from posbias.study import read_study, run_study, judge

    outcome = run_study(read_study("dimension.toml"), "results/studies/dimension")
    for claim in judge(outcome):
        print(claim)

`value` says what a study is, `verbs` what its cells do, `running` computes and judges; `docs/study.md`
explains.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
