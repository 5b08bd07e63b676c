"""Retrieval by position: trials, their templates, whatever answers them, and the statistics of the answers.

    from posbias.retrieval import ask, retrieval_job

    curve = ask(lambda prompt: my_model(prompt), retrieval_job("keys", pairs=20, wording="chat"))
    print(*curve.sentences(), sep="\\n")

Nothing here knows torch or opens a model: `posbias.measurement` does, and asks it for probabilities.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
