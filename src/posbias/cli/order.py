"""`posbias order`: documents in the order that a profile calls best, where that is shown to help."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.cli.output import answer_with, read_as
from posbias.reports import answers

Length = Annotated[float, Parameter(n_tokens=1)]
_LENGTHS = {
    "tokens": "",
    "characters": "lengths: characters of the texts, no tokens given",
    None: "lengths: not given, taken to be equal",
}
"""What is said of lengths, by their unit."""


def order(
    hits: Path,
    *,
    profile: str,
    prefix: Length = 0.0,
    suffix: Length = 0.0,
    scores: Literal["score", "similarity", "distance", "logit", "rank"] | None = None,
    tokens: shared.ContextLength = None,
    columns: shared.Columns = None,
    out: shared.Out | None = None,
    json: shared.Json = False,
) -> None:
    """Order documents for a prompt, with the expected gain over standard orders and whether it is significant.

    Parameters
    ----------
    hits
        Documents as JSON lines, JSON, CSV or a run of TREC, as retrievers write them, each with a score
        (rerank_score, score, similarity, logit, distance, …) or rank and its length (tokens or length; else the
        characters of text, document, content or page_content).
    profile
        What a place is worth: a known model (smollm2-135m), what `posbias retrieve` kept (best; its folder,
        retrieval.nc or retrieval.json), measurement.nc of `posbias measure`, the JSON of `posbias predict`, or
        results made elsewhere (a file or folder).
    prefix
        Length of what stands before the documents, in the unit of their lengths.
    suffix
        Length of what stands behind them, the question for instance.
    scores
        What scores are: in proportion to the chance that the document holds what is asked for (score, similarity),
        logits, or good for their rank alone (weights 1/rank; distance: less is better). Default: by the field's
        name, rank where some are negative.
    out
        Write the lines in the best order to this file: in a usual one (best first, best last, both ends) where
        none is shown to be better than it, and as they are where no other order is shown to help.
    """
    from posbias.core.files import write_text
    from posbias.ordering import order as ordered
    from posbias.ordering import profile_of
    from posbias.ordering.hits import read_hits

    shared.check_targets(out, None, hits)
    given = read_hits(hits, scores)
    worth = profile_of(profile, tokens=tokens, columns=columns)
    around = {"prefix": prefix, "suffix": suffix, "in_tokens": given.unit == "tokens"}
    found = ordered(len(given.scores), given.scores, given.lengths, profile=worth, **around)
    if out is not None:
        write_text(out, given.text(found.recommended))
    about = {"lengths_in": given.unit, "scores": given.note, "read_as": read_as({"profile": worth})}
    answer = answers.Order.of(found, instead=found.instead and found.instead[0], **about)
    notes = filter(None, [_LENGTHS[given.unit], given.note])
    answer_with(answer, lambda: [*str(found).split("\n"), *notes], json)
