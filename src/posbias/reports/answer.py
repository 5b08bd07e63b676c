"""What a report answers first: four questions, in words that need no paper and follow from the numbers alone."""

import math
from dataclasses import dataclass

from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile, Summary
from posbias.reports.evidence import Findings
from posbias.reports.scores import WASSERSTEIN, decided, number, percent

WHERE, SURE = "Where does this model look?", "How sure is that?"
SHOWS = "What does this curve show?"
EXPECTED, PROMPT = "What would one expect from its architecture?", "What does it mean for a prompt?"
ARCHITECTURE = "positional"
"""The predictor that knows mask, encoding and residual connection, and nothing of content."""
BASELINES = {"uniform": "an even spread", "recency_only": "plain recency, 1/(distance + 1)"}
FAVOURS = {
    "recency": "the most recent tokens",
    "primacy": "the earliest tokens",
    "middle": "the middle over both ends",
    "flat": "no part of its context",
    "U": "both ends over what lies between",
}


@dataclass(frozen=True)
class Answer:
    """A question and its answer, one or more sentences."""

    question: str
    text: str


def answers(found: Findings) -> list[Answer]:
    """Where the model looks, how sure that is, what its architecture lets one expect, what a prompt has of it."""
    told = {
        WHERE: f"{_looks(found)} {_loses(found)}",
        SURE: _sure(found),
        EXPECTED: _expected(found),
        PROMPT: _prompt(found),
    }
    return [Answer(question, text) for question, text in told.items() if text]


def _looks(found: Findings) -> str:
    s = found.measured.summary
    assert s.verdict is not None  # measured: nothing is left out
    opening = _both_ends(s) if s.verdict == "U" else f"favours {FAVOURS[s.verdict]} ({s.verdict})"
    return (
        f"{found.model} {opening}. Of the influence of {s.tokens} tokens on the next one, the last "
        f"{_hold(s.ends, found.shape.last, s)} and the first {_hold(s.ends, found.shape.first, s)}.{alone(s)}"
    )


def alone(s: Summary) -> str:
    """That the verdict rests on the first token or the query's own alone, where it does."""
    return "".join(f" Verdict {said}." for said in s.ends_alone)


def _hold(ends: int, share: Estimate, s: Summary) -> str:
    """'3 tokens hold 48.3 ± 2.1 % (10 times an even share)'."""
    tokens = "token holds" if ends == 1 else f"{ends} tokens hold"
    return f"{tokens} {percent(share)} ({share.value / (ends / s.tokens):.2g} times an even share)"


def _both_ends(s: Summary) -> str:
    """What a U says of the ends: one may hold less than an even share, and still more than what lies between."""
    even = s.ends / s.tokens
    if min(s.first_mass, s.last_mass) >= even:
        return f"favours {FAVOURS['U']} (U-shaped)"
    more, less = ("last", "first") if s.first_mass < even else ("first", "last")
    return (
        f"favours its {more} tokens; its {less} hold less than an even share, but more than those where "
        "influence is least (U-shaped)"
    )


def _loses(found: Findings) -> str:
    s = found.measured.summary
    place = s.trough / max(s.tokens - 1, 1)
    part = "early part" if place < 0.2 else "late part" if place > 0.8 else "middle"
    where = f"around position {s.trough} of 0 … {s.query}"
    if found.shape.trough_range is not None:
        low, high = found.shape.trough_range
        where += f" ({low} to {high} in 95 % of resamples of the {found.shape.last.n} prompts)"
    even = "the mean of those in reach" if s.out_of_reach else "an even spread"
    below = f"{percent(found.shape.depth)} below {even}"
    if s.out_of_reach:
        reach = f"{s.out_of_reach} of {s.tokens} positions are out of reach"
        return f"{reach}; of the others influence is least {where}, {below}."
    if s.verdict == "flat":
        return f"No part of the context is lost: even at its least, {where}, influence is only {below}."
    if found.shape.depth.known and found.shape.depth.interval[0] <= 0:
        return f"Whether any part is lost the prompts do not tell: influence is least {where}, {below}."
    return f"It loses the {part}: influence is least {where}, {below}."


def _sure(found: Findings) -> str:
    """What of the verdict the prompts tell, and what they are."""
    doubts, sizes = found.measured.doubts, found.measurement.sizes
    if doubts:
        told = f"That is what the mean of these prompts shows: {'; '.join(doubts)}."
    else:
        told = (
            f"These {sizes['prompt']} prompts tell which ends are favoured: 95 % intervals over prompts decide "
            "for each."
        )
    text = found.measurement.attrs.get("text", "an unnamed text")
    return (
        f"{told} They are pieces of {sizes['position']} tokens from the text ‘{text}’: of other texts and "
        "lengths nothing is known from here."
    )


def _expected(found: Findings) -> str:
    """The profile of mask, encoding and residual alone, held against the measured one and an even spread."""
    expected = found.predictions.get(ARCHITECTURE)
    if expected is None:
        return ""
    return (
        "Three things without content, as measured on these prompts: which tokens it may look at, what its "
        "encoding of positions adds at each distance, and how much of each token a layer passes on unchanged. "
        f"From them alone one would expect that it {_would(expected)}. That is {_kind(found, expected)}. "
        f"{_guide(found)} The difference is left to content, and to what this theory leaves out."
    )


def _would(expected: Profile) -> str:
    s = expected.summary
    assert s.verdict is not None  # a predictor of measured statistics leaves nothing out
    shares = f"{100 * s.last_mass:.3g} % of the influence on the last {s.ends}"
    return f"favours {FAVOURS[s.verdict]}, with {shares} and {100 * s.first_mass:.3g} % on the first {s.ends}"


def _kind(found: Findings, expected: Profile) -> str:
    same = found.measured.summary.verdict == expected.summary.verdict
    return "the kind of curve that is seen" if same else "not the kind of curve that is seen"


def _guide(found: Findings) -> str:
    """How far the expectation is off, beside what two curves without any theory are."""
    own, *without = [
        found.comparison.agreements[ARCHITECTURE],
        *(found.comparison.baselines[name] for name in BASELINES),
    ]
    sides = {one.less: one.scores.wasserstein for one in found.comparison.leads if one.more == ARCHITECTURE}
    beside = [
        f"{_side(sides.get(name))} {words} ({_part(found, one.wasserstein)})"
        for (name, words), one in zip(BASELINES.items(), without, strict=True)
    ]
    return (
        f"To make that curve the measured one, influence must move by {_part(found, own.wasserstein)} of the "
        f"context on average: it is {beside[0]}, and {beside[1]}."
    )


def _part(found: Findings, score: Estimate) -> str:
    """A distance as a share of the context, with as many digits as the intervals allow."""
    return f"{number(100 * score.value, max(0, WASSERSTEIN.digits_in(found.comparison) - 2))} %"


def _side(lead: Estimate | None) -> str:
    """What a paired difference of distances tells."""
    if lead is None or not decided(lead):
        return "not told apart from"
    return "nearer than" if lead.value < 0 else "farther than"


def _prompt(found: Findings) -> str:
    """What the verdict says of text in a prompt, as far as it goes, and what it does not say."""
    s = found.measured.summary
    assert s.verdict is not None
    weigh = {
        "recency": "what stands at the end weighs more in the next token than what stands before",
        "primacy": "what stands at the beginning weighs more in the next token than what stands after",
        "U": "what stands at either end weighs more in the next token than what lies between",
        "middle": "what stands in the middle weighs more in the next token than what stands at either end",
        "flat": "what stands at either end weighs no more in the next token than what lies between",
    }[s.verdict]
    opening = "If the verdict holds, in" if found.measured.doubts else "In"
    return (
        f"{opening} prompts like these {weigh}{_times(found)}. Weight is not use: whether the model finds a fact, "
        "and where, this does not tell, and the two need not go together. ‘posbias retrieve’ asks it for facts by "
        "place."
    )


def _times(found: Findings) -> str:
    """A token of the favoured end beside one where influence is least."""
    s = found.measured.summary
    least = (1.0 - found.shape.depth.value) * s.ends / s.tokens
    end = {"recency": found.shape.last, "primacy": found.shape.first}.get(s.verdict or "")
    if end is None and s.verdict == "U":
        end = max(found.shape.first, found.shape.last, key=lambda one: one.value)
    if end is None or least <= 0 or math.isnan(least):
        return ""
    which = "last" if end is found.shape.last else "first"
    return (
        f": one of the {which} {s.ends} on average {end.value / least:.2g} times one where influence is least"
    )
