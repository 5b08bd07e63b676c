"""A profile read from a file as a page: what it was taken for, its curve, its ends against its middle."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from posbias.core.errors import InvalidValueError
from posbias.core.files import write_bytes, write_text
from posbias.core.packages import need
from posbias.profiles.claims import LEAST, Above, Claim, Evidence, Judged, judged, mean
from posbias.profiles.gaps import EQUIVALENCE, gaps_of
from posbias.profiles.places import Places
from posbias.profiles.profile import Profile
from posbias.reports.profile_sentences import FAVOURS, ends_line, paragraph, surety
from posbias.reports.sentences import EXPECTED, PROMPT, SHOWS, SURE

if TYPE_CHECKING:
    from posbias.reports.answers.measurements import ProfilePage


def write_profile_report(profile: Profile, folder: str | os.PathLike[str], *, title: str) -> "ProfilePage":
    """Write `report.html`, the curve (`profile.svg`, `profile.png`) and its numbers (`profile.csv`) into a folder.

    Raises `MissingPackageError` without matplotlib or jinja2, `OutputFileError` if a file cannot be written, and
    `InvalidValueError` for a profile of one position.
    """
    if profile.tokens < 2:
        raise InvalidValueError(f"profile: expected two positions or more, got {profile.tokens}")
    need("jinja2", "matplotlib", work="a report", extra="report")
    from posbias.reports.answers.measurements import ProfilePage
    from posbias.reports.figures import Illustration, curve
    from posbias.reports.page import render_profile
    from posbias.reports.plots import draw_profile, new_figure

    figure, numbers = new_figure(), curve(profile)
    draw_profile(figure.subplots(), profile)
    caption = f"{numbers.columns[1]} by {numbers.columns[0]}"
    if profile.limits is not None:
        rows = 0 if profile.samples is None else len(profile.samples)
        how = "of the counts" if profile.counts is not None else f"by Student's t over {rows} samples"
        caption += f" with 95 % intervals {how}"
    shown = Illustration("profile", "The curve", paragraph(caption), figure, numbers)
    for name, content in shown.files.items():
        write_bytes(Path(folder) / name, content)
    claims, read_as = end_claims(profile), taken_for(profile)
    answered = answers(profile, claims)
    page = write_text(Path(folder) / "report.html", render_profile(title, read_as, answered, shown, claims))
    return ProfilePage.of(
        page=page,
        answer=[*answered.values()],
        claims=[claim.as_dict() for claim in claims],
        read_as={"source": read_as},
    )


def end_claims(profile: Profile) -> tuple[Judged, ...]:
    """Whether the first and the last place lie above the middle, judged by paired differences of the samples.

    The middle is the mean of all inner places; of two places it is the first above the last.

    Differences of rates count from 0.02 on; other numbers have no such scale. Without two samples, or with samples
    that all differ alike, a claim is undecided.
    """
    rows, claims = profile.samples, []
    gaps = gaps_of(profile.mass[None] if rows is None else np.asarray(rows, dtype=np.float64))
    for name, gap in list(gaps.items())[:2]:
        above, below = name.split(" - ")
        claim = Claim(
            f"elsewhere/{above}-above-{below}",
            "results made elsewhere",
            f"The {above} place is above the {below}",
            test=Above(least=LEAST if profile.kind == "rate" else 0.0),
            provenance="ours",
            scope=taken_for(profile),
            evidence=f"{0 if rows is None else len(rows)} samples",
        )
        where = f"{profile.measures}: {name}"
        if rows is None:
            piece = Evidence(where, flaw="no samples")
        elif len(gap) > 1 and not gap.std():
            piece = Evidence(where, flaw=f"{gap[0]:g} in all {len(gap)} samples, which have no error")
        else:
            piece = mean(where, gap, draws="samples")
        claims.append(judged(claim, [piece]))
    return tuple(claims)


def taken_for(profile: Profile) -> str:
    """What a file was taken for; of our own files what they are of."""
    of = f" of {profile.name}" if profile.name else ""
    return str(profile.attrs.get("read_as", f"{profile.measures}{of}, {profile.tokens} places"))


def answers(profile: Profile, claims: tuple[Judged, ...]) -> dict[str, str]:
    """By question: what the curve shows, how sure that is, and what such a file does not say."""
    computed = profile.measures == "rollout"
    made = (
        "The curve is itself computed, from an architecture or from attention, and was not measured."
        if computed
        else "The file does not hold how the model is built; ‘posbias predict’ computes it from a configuration."
    )
    prompt = (
        "It shows at which places answers were right in these trials, with all else the same; others may "
        "differ. ‘posbias order’ puts documents in order by it."
        if profile.kind == "rate"
        else f"It shows which positions weigh most in what the model writes next{', in theory' * computed}. "
        "Weight is not use: whether a fact is found there is measured by ‘posbias retrieve’."
    )
    return {SHOWS: _shows(profile), SURE: _sure(profile, claims), EXPECTED: made, PROMPT: prompt}


def _shows(profile: Profile) -> str:
    mass, s = profile.mass, profile.summary if profile.kind == "mass" else None
    name = "the share of the influence" if s else profile.measures

    def where(value: float) -> str:
        first, *more = (f"{profile.at[k]:g}" for k in np.flatnonzero(mass == value).tolist())
        return f"place {first}{f' and {len(more)} more' * bool(more)} ({value:.4g})"

    said = [f"{name} is highest at {where(mass.max())} and lowest at {where(mass.min())}"]
    if mass.max() == mass.min():
        said = [f"{name} is {mass[0]:.4g} at all {profile.tokens} places"]
    if profile.left_out:
        said.append(f"there is no verdict: {profile.caveat}")
    if s and s.verdict is not None:
        said.append(f"the curve favours {FAVOURS[s.verdict]}: {ends_line(profile)}")
        said += [f"verdict {alone}" for alone in s.ends_alone]
    return paragraph(*said)


def _sure(profile: Profile, claims: tuple[Judged, ...]) -> str:
    samples = 0 if profile.samples is None else len(profile.samples)
    if samples < 2:
        return (
            "How sure that is, is not known: the file has one number for each place, not one of each trial."
        )
    rate, measures = profile.kind == "rate", profile.measures
    places = profile.places
    rows = places.rows if places is not None else "trials" if rate else "prompts"
    said = [f"every number is a mean over {samples} {rows}"]
    if counts := sorted({of for _, of in profile.counts or ()}):
        said = [
            f"every number is a share of {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} answers"
        ]
    said += surety(profile)
    if places is not None and not places.able:
        said.append(
            "answers are not shown to be better than guesses: the curve may show where the model copies from"
        )
    elif rate:
        scores = {measures: np.asarray(profile.samples)}
        said += Places(scores, profile.at, rows=rows, equivalence=EQUIVALENCE).sentences()
    else:
        said += [f"{claim.sentence}: {claim.verdict} ({claim.why})" for claim in claims]
    return paragraph(*said)
