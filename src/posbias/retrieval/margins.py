"""Margins by position of whoever scores endings, a server for instance: as of a model that is opened here.

    scorer = scorer_of(Endpoint("http://localhost:8000/v1", "smollm2", api="completion"))
    print(*ask_margins(scorer, retrieval_job("keys", pairs=5)).sentences(), sep="\\n")

Each trial is asked for the fact and for somebody who does not occur, at every position. A log-probability that is
but an upper bound counts as it is; where the right thing or the best other has one, the margin is counted as
`bounded`.
"""

import json
import logging
import os
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.asking.kept import AnswerFile
from posbias.asking.requests import Place, Request, Scorer, ScoresWritten, specification_of
from posbias.core import spec
from posbias.core.errors import counted, positive, wrong
from posbias.core.matching import words_in
from posbias.core.progress import OnEvent
from posbias.profiles.places import MOST_CUT_OFF, Places
from posbias.retrieval.jobs import RetrievalJob
from posbias.retrieval.session import trials_of

log = logging.getLogger(__name__)


def margins_of(scores: Float[np.ndarray, "*prompt candidate"]) -> dict[str, Any]:
    """The log-probability of candidate 0 less the best other's, and less the others' mean."""
    right, others = scores[..., 0], scores[..., 1:]
    return {"margin": right - others.max(axis=-1), "margin_mean": right - others.mean(axis=-1)}


def ask_margins(
    scorer: Scorer,
    job: RetrievalJob,
    *,
    text: str | None = None,
    answers: str | os.PathLike[str] | None = None,
    concurrency: int = 1,
    equivalence: float | None = None,
    on_event: OnEvent = lambda event: None,
) -> Places:
    """Ask how likely each candidate is at every position, in `job.prompts` trials worded without a tokenizer.

    scorer: who is asked (`scorer_of`, `LocalModel`). job: of keys or needle, whose candidates are known.
    equivalence: the difference in nats that counts as none. Other arguments as of `retrieval.ask`.

    Raises `InvalidValueError` for what cannot be right, and what the scorer and `AnswerFile` raise.
    """
    counted("concurrency", concurrency)
    if equivalence is not None:
        positive("equivalence", equivalence)
    if job.task not in ("keys", "needle"):
        raise wrong("task", "keys or needle, whose candidates are known", job.task)
    trials = trials_of(job, text=text)
    made = [trials.trial(index) for index in range(job.prompts)]
    asked = [
        Request(index, Place("position" if prompts is trial.asked else "control", k), prompt)
        for index, trial in enumerate(made)
        for prompts in (trial.asked, trial.control)
        for k, prompt in enumerate(prompts)
    ]
    candidates = {one.prompt: made[one.trial].answers for one in asked}
    file = AnswerFile(answers, specification_of(scorer))
    each = f", each of them {len(made[0].answers)} times" * getattr(scorer, "echoes", False)
    file.announce(asked, scorer, more=each)
    file.answer(ScoresWritten(scorer, candidates), asked, concurrency, on_event)
    kept = [json.loads(file.known[one.id]) for one in asked]
    results = _results(np.reshape(kept, (job.prompts, 2, job.positions, 3, -1)))
    bounded = results["bounded"]
    said = f"{bounded.sum():.0f} of {bounded.size} margins are bounds, for want of alternatives"
    if bounded.any():
        log.warning(said)
    return Places(
        results,
        np.mean([trial.depths for trial in made], axis=0),
        {"model": "the scorer"} | file.asked_of,
        spec.encode(job),
        rule="greedy",
        chance=1 / len(made[0].answers),
        length=float(np.mean([words_in(one) for trial in made for one in trial.asked])),
        unit="words",
        equivalence=equivalence,
        flaws=(said,) if bounded.mean(axis=0).max() > MOST_CUT_OFF else (),
    )


def _results(kept: Float[np.ndarray, "trial arm position part candidate"]) -> dict[str, Any]:
    """By trial and position what `Places` has of a model that is opened, and where a margin is a bound."""
    (scores, control), (greedy, _), (bounds, _) = np.moveaxis(kept, (3, 1), (0, 1))
    own, other = margins_of(scores), margins_of(control)
    best = scores[..., 1:].argmax(axis=-1, keepdims=True)
    return {
        "accuracy": greedy[..., 0],
        "choice": own["margin"] > 0,
        **own,
        "control_margin": other["margin"],
        "lift": own["margin_mean"] - other["margin_mean"],
        "bounded": np.maximum(bounds[..., 0], np.take_along_axis(bounds[..., 1:], best, axis=-1)[..., 0]),
    }
