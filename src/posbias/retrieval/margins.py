"""Margins by position, from log-probabilities of the candidates: as of a model that is opened here.

    scorer = scorer_of(Endpoint("http://localhost:8000/v1", "smollm2", api="completion"))
    session = Session((retrieval_job("keys", pairs=5),), equivalence=None, margins=True)
    (curve,) = session.ask_each({"log-probabilities": scorer}).values()

Each trial is asked for the fact and for somebody who does not occur, at every position. A log-probability that is
but an upper bound counts as it is; where the right thing or the best other has one, the margin is counted as
`bounded`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.asking.requests import id_of
from posbias.retrieval.trials import Trial


def margins_of(scores: Float[np.ndarray, "*prompt candidate"]) -> dict[str, Any]:
    """The log-probability of candidate 0 less the best other's, and less the others' mean."""
    right, others = scores[..., 0], scores[..., 1:]
    return {"margin": right - others.max(axis=-1), "margin_mean": right - others.mean(axis=-1)}


def scored(made: Sequence[Trial], known: Mapping[str, str]) -> dict[str, Any]:
    """By trial and position what `Places` has of a model that is opened, and where a margin is a bound.

    `known`: what `ScoresWritten` wrote, by the id of its prompt.
    """
    kept = [[[json.loads(known[id_of(text)]) for text in one] for one in (t.asked, t.control)] for t in made]
    # trial, arm, position, part, candidate
    (scores, control), (greedy, _), (bounds, _) = np.moveaxis(np.array(kept), (3, 1), (0, 1))
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
