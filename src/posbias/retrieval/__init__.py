"""Retrieval by position: trials, their wordings, whatever answers them, and the statistics of the answers.

    from posbias.retrieval import ask, retrieval_job

    curve = ask(lambda prompt: my_model(prompt), retrieval_job("keys", pairs=20, wording="chat"))
    print(*curve.sentences(), sep="\\n")

`local` opens a model and asks it for probabilities; nothing else here knows torch.
"""

from posbias.core.packages import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__, "retrieval by a model here", extra="measure")
