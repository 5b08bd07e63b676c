"""A profile read from a file as a page: what it was taken for, its curve, its ends against its middle."""

import os
from typing import TYPE_CHECKING

import numpy as np

from posbias.core.errors import InvalidValueError
from posbias.core.packages import need
from posbias.profiles.estimate import Estimate, digits_of_shares
from posbias.profiles.gaps import gaps_of, signed, signs_of
from posbias.profiles.places import ANY, by_t
from posbias.profiles.profile import Profile
from posbias.reports import plots
from posbias.reports.answers import JudgedClaim, ProfilePage
from posbias.reports.profile_sentences import SENTENCES, ends_line, headline, lead, paragraph, surety
from posbias.reports.sentences import PROMPT, SHOWS, SURE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDE, NARROW = 6.4, 3.1
"""Inches of the picture on a wide page, and on one of some 400 pixels."""
VERDICTS = {1: ("holds", True), 0: ("undecided", None), -1: ("fails", False)}
"""Verdict on an end above the middle, and whether that is seen, by the sign of its gap."""


def write_profile_report(profile: Profile, folder: str | os.PathLike[str], *, title: str) -> ProfilePage:
    """Write `report.html`, the curve (`profile.svg`, `profile.png`) and its numbers (`profile.csv`) into a folder.

    Raises `MissingPackageError` without matplotlib or jinja2, `OutputFileError` if a file cannot be written, and
    `InvalidValueError` for a profile of one position.
    """
    if profile.tokens < 2:
        raise InvalidValueError(f"profile: expected two positions or more, got {profile.tokens}")
    need("jinja2", "matplotlib", work="a report", extra="report")
    from posbias.reports.figures import Illustration, curve
    from posbias.reports.page import write_page

    numbers, digits = curve(profile), digits_of_shares(_rows(profile)) if profile.kind == "rate" else None
    caption = f"{numbers.columns[1]} by {numbers.columns[0]}"
    if profile.limits is not None:
        student = f"by Student's t over {_rows(profile)} samples"
        how = student if profile.counts is None else "of the counts"
        caption += f" with 95 % intervals {how}"
    pictures = (_drawn(profile, width) for width in (WIDE, NARROW))
    figure = Illustration(
        "profile", "The curve", paragraph(caption), next(pictures), numbers, next(pictures), digits
    )
    claims, read_as = end_claims(profile), taken_for(profile)
    about = {"headline": headline(profile), "lead": lead(profile), "answers": answers(profile, claims)}
    about |= {"title": f"{title} by position", "under": f"{title}, read as {read_as}."}
    page, _ = write_page(folder, "profile.html", [figure], **about)
    shows, *others = about["answers"].values()
    answer = [f"{about['headline']} ({about['lead']}). {shows}", *others]
    return ProfilePage.of(page=page, answer=answer, claims=claims, read_as={"source": read_as})


def _drawn(profile: Profile, width: float) -> "Figure":
    """The curve; of results by place that have margins or control arms, with those."""
    places = profile.places
    if places is not None and "margin" in places.results:
        return plots.retrieval_figure(places, width=width)
    if places is not None and places.arms:
        return plots.answers_figure([places], width)
    return plots.drawing(plots.draw_profile, profile, size=(width, max(2.6, width / 2)))


def _rows(profile: Profile) -> int:
    return 0 if profile.samples is None else len(profile.samples)


def end_claims(profile: Profile) -> list[JudgedClaim]:
    """Whether the first and the last place lie above the middle, as the verdict on the curve has it (`signs_of`).

    The middle is the mean of all inner places; of two places it is the first above the last. Without two samples,
    or with samples that all differ alike, a claim is undecided.
    """
    claims, places, gaps = [], profile.places, _gaps(profile)
    signs = signs_of(gaps) if places is None or places.able else dict.fromkeys(gaps, 0)
    for name, gap in [*gaps.items()][:2]:
        above, below = name.split(" - ")
        why = f"{name}: {gap}" if places is None else f"{name}: {signed(gap, places.unit_of_gaps)}"
        if _rows(profile) < 2:
            why = "one number for each place, not one of each trial"
        said = {"id": f"elsewhere/{above}-above-{below}", "claim": f"The {above} place is above the {below}"}
        said |= dict(zip(("verdict", "seen"), VERDICTS[signs[name]], strict=True))
        about = {"scope": taken_for(profile), "evidence": f"{_rows(profile)} samples"}
        about |= {"place": "results made elsewhere", "effects": []}
        claims.append(JudgedClaim.of(gap, number=gap.value, why=why, **said, **about))
    return claims


def _gaps(profile: Profile) -> dict[str, Estimate]:
    """Differences of places: of results by place those that their verdict rests on."""
    if profile.places is not None:
        return profile.places.deciding
    rows = profile.mass[None] if profile.samples is None else np.asarray(profile.samples, dtype=np.float64)
    numbers = by_t({ANY: {(profile.measures, name): gap for name, gap in gaps_of(rows).items()}})
    return {str(name): gap for (_, name), gap in numbers.items()}


def taken_for(profile: Profile) -> str:
    """What a file was taken for; of our own files what they are of."""
    of = f" of {profile.name}" if profile.name else ""
    return str(profile.attrs.get("read_as", f"{profile.measures}{of}, {profile.tokens} places"))


def answers(profile: Profile, claims: list[JudgedClaim]) -> dict[str, str]:
    """By question: what the curve shows, how sure that is, and what follows."""
    places, prompt = profile.places, SENTENCES["rate"]
    if profile.kind != "rate":
        theory = ", in theory" * (profile.measures == "rollout")
        prompt = f"{SENTENCES['weight'].format(theory=theory)} {SENTENCES['not_use']}"
    # of other rates nobody knows what stands at a place: an option, perhaps
    elif places is not None and (places.job or places.unit == "documents"):
        prompt += SENTENCES["order"]
    return {SHOWS: _shows(profile), SURE: _sure(profile, claims), PROMPT: prompt}


def _shows(profile: Profile) -> str:
    mass, s = profile.mass, profile.summary if profile.kind == "mass" else None
    name = "the share of the influence" if s else profile.measures
    digits = f".{digits_of_shares(_rows(profile))}f" if profile.kind == "rate" else ".4g"

    def where(value: float) -> str:
        first, *more = (f"{profile.at[k]:.3g}" for k in np.flatnonzero(mass == value).tolist())
        return f"place {first}{f' and {len(more)} more' * bool(more)} ({value:{digits}})"

    said = [f"{name} is highest at {where(mass.max())} and lowest at {where(mass.min())}"]
    if mass.max() == mass.min():
        said = [f"{name} is {mass[0]:{digits}} at all {profile.tokens} places"]
    if s and s.verdict is not None:
        said += [ends_line(profile), *(f"verdict {alone}" for alone in s.ends_alone)]
    return paragraph(*said)


def _sure(profile: Profile, claims: list[JudgedClaim]) -> str:
    if _rows(profile) < 2:
        return SENTENCES["one_number"]
    judged = [f"{one.claim}: {one.verdict} ({one.why})" for one in claims]
    return paragraph(*surety(profile), *(profile.places.sentences() if profile.places else judged))
