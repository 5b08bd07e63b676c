"""A gate: whether position matters by more than a limit, as far as the questions tell.

from posbias.checking import check

answer = check(lambda prompt: my_server(prompt), "questions.jsonl", max_gap=0.1)
print(answer.status, *answer.sentences(), sep="\n")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
