"""`posbias order`: documents in the order that a profile calls best, if that is told to help."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.cli.output import answer_with, read_as

Length = Annotated[float, Parameter(n_tokens=1)]


def order(
    hits: Path,
    *,
    profile: str,
    prefix: Length = 0.0,
    suffix: Length = 0.0,
    out: shared.Out | None = None,
    json: shared.Json = False,
) -> None:
    """Order documents for a prompt: what is gained over the usual orders, and whether that is told at all.

    Parameters
    ----------
    hits
        Documents as JSON lines, each with a score (score, relevance_score or similarity, ≥ 0, in proportion to the
        chance that the document holds what is asked for) and its length (tokens or length; else the characters of
        text, document, content or page_content).
    profile
        What a place is worth: a known model (smollm2-135m), what `posbias retrieve` kept (best; its folder,
        retrieval.nc or retrieval.json), measurement.nc of `posbias measure`, the JSON of `posbias predict`, or
        results made elsewhere (a file or folder).
    prefix
        Length of what stands before the documents, in the unit of their lengths.
    suffix
        Length of what stands behind them, the question for instance.
    out
        Write the lines in the best order to this file: in a usual one (best first, best last, both ends) where
        none is shown to be better than it, and as they are where no other order is shown to help.
    """
    from posbias.files import write_text
    from posbias.ordering import order as ordered
    from posbias.ordering.hits import read_hits
    from posbias.ordering.known import profile_of

    shared.check_targets(out, None, hits)
    given = read_hits(hits)
    worth = profile_of(profile)
    found = ordered(
        len(given.lines),
        given.scores,
        given.lengths,
        profile=worth,
        prefix=prefix,
        suffix=suffix,
        in_tokens=given.unit == "tokens",
    )
    if out is not None:
        write_text(out, "".join(f"{given.lines[place]}\n" for place in found.recommended))
    answer = found.as_dict() | {"lengths_in": given.unit} | read_as({"profile": worth})
    notes = [] if given.unit == "tokens" else ["lengths: characters of the texts, no tokens given"]
    answer_with("order/1", answer, lambda: [*str(found).split("\n"), *notes], json)
