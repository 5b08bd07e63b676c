"""A profile read from elsewhere as a page: what it was taken for, its curve, its ends against its middle."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from posbias.core.errors import InvalidValueError
from posbias.core.files import write_bytes, write_text
from posbias.profiles.claims import Claim, Judged, judged
from posbias.profiles.evidence import LEAST, Above, Evidence, mean
from posbias.profiles.profile import Profile
from posbias.reports import require
from posbias.reports.answer import EXPECTED, FAVOURS, PROMPT, SHOWS, SURE, Answer, alone
from posbias.reports.numbers import curve, places_of
from posbias.retrieval.estimation import verdict_of_trials
from posbias.retrieval.statistics import gaps_of


@dataclass(frozen=True)
class ProfileReport:
    """What was written and found: the `page`, its `figures` (with their CSV), the `answer` in plain words, the
    `claims` on the ends of the curve, and what the file was `read_as`."""

    page: Path
    figures: list[Path]
    claims: tuple[Judged, ...]
    answer: list[str]
    read_as: str


def end_claims(profile: Profile) -> tuple[Judged, ...]:
    """Whether the first and the last place lie above the middle, judged by paired differences of the samples.

    The middle is the mean of all inner places; of two places it is the first above the last.

    Differences of rates count from 0.02 on; other numbers have no such scale. Without two samples, or with samples
    that all differ alike, a claim is undecided.
    """
    rows, told = profile.samples, []
    gaps = gaps_of(profile.mass[None] if rows is None else np.asarray(rows, dtype=np.float64))
    for name, gap in list(gaps.items())[:2]:
        above, below = name.split(" - ")
        claim = Claim(
            f"elsewhere/{above}-above-{below}",
            "results made elsewhere",
            f"The {above} place is above the {below}",
            test=Above(least=LEAST if profile.kind == "rate" else 0.0),
            provenance="ours",
            scope=told_as(profile),
            effort=f"{0 if rows is None else len(rows)} samples",
        )
        where = f"{profile.measures}: {name}"
        if rows is None:
            piece = Evidence(where, flaw="no samples")
        else:
            piece = mean(where, gap, draws="samples")
            if len(gap) > 1 and not gap.std():
                piece = Evidence(where, flaw=f"{gap[0]:g} in all {len(gap)} samples, which have no error")
        told.append(judged(claim, [piece]))
    return tuple(told)


def told_as(profile: Profile) -> str:
    """What a file was taken for; of our own files what they are of."""
    of = f" of {profile.name}" if profile.name else ""
    return str(profile.attrs.get("read_as", f"{profile.measures}{of}, {profile.tokens} places"))


def write_profile_report(profile: Profile, folder: str | os.PathLike[str], *, title: str) -> ProfileReport:
    """Write `report.html`, the curve (`profile.svg`, `profile.png`) and its numbers (`profile.csv`) into a folder.

    Raises `MissingPackageError` without matplotlib or jinja2, `OutputFileError` if a file cannot be written, and
    `InvalidValueError` for a profile of one position.
    """
    if profile.tokens < 2:
        raise InvalidValueError(f"profile: expected two positions or more, got {profile.tokens}")
    require("jinja2", "matplotlib")
    from posbias.reports.figures import Illustration
    from posbias.reports.page import render_profile
    from posbias.reports.plots import draw_profile, new_figure, picture_bytes

    figure, numbers = new_figure(), curve(profile)
    draw_profile(figure.subplots(), profile)
    beside = {kind: picture_bytes(figure, kind) for kind in ("svg", "png")} | {"csv": numbers.csv().encode()}
    drawn = [write_bytes(Path(folder) / f"profile.{kind}", content) for kind, content in beside.items()]
    claims = end_claims(profile)
    told = answers(profile, claims)
    one = Illustration("profile", "The curve", f"{numbers.caption}.", figure, numbers)
    page = render_profile(title, told_as(profile), told, one, beside["svg"], claims)
    place = write_text(Path(folder) / "report.html", page)
    return ProfileReport(place, drawn, claims, [one.text for one in told], told_as(profile))


def answers(profile: Profile, claims: tuple[Judged, ...]) -> list[Answer]:
    """What the curve shows, how sure that is, and what such a file does not tell."""
    about = {
        SHOWS: _shows(profile),
        SURE: _sure(profile, claims),
        EXPECTED: "The curve is itself computed, from an architecture or from attention, and was not measured."
        if _is_computed(profile)
        else "The curve was measured by asking, which does not tell how the model is built. ‘posbias predict’ "
        "tells of a configuration what its architecture leads one to expect."
        if "job" in profile.attrs
        else "The file does not hold how the model is built. ‘posbias predict’ tells it of a configuration.",
        PROMPT: _prompt(profile),
    }
    return [Answer(question, text) for question, text in about.items()]


def _is_computed(profile: Profile) -> bool:
    return profile.measures == "rollout"


def _shows(profile: Profile) -> str:
    best, worst = float(profile.mass.max()), float(profile.mass.min())
    name = "the share of the influence" if profile.kind == "mass" else profile.measures
    told = f"{name[0].upper()}{name[1:]} is "
    if best == worst:
        told += f"{best:.4g} at all {profile.tokens} places."
    else:
        most, least = (f"{_where(profile, one)} ({one:.4g})" for one in (best, worst))
        told += f"highest at {most} and lowest at {least}."
    if profile.left_out:
        told += f" There is no verdict: {profile.caveat}."
    verdict = profile.summary.verdict if profile.kind == "mass" else None
    if verdict is not None:
        s = profile.summary
        told += (
            f" The curve favours {FAVOURS[verdict]}: the last {s.ends} of {s.tokens} positions hold "
            f"{100 * s.last_mass:.3g} %, the first {s.ends} {100 * s.first_mass:.3g} %.{alone(s)}"
        )
    return told


def _where(profile: Profile, value: float) -> str:
    """The places that have a number; how many, where they are more than three."""
    held = [f"{places_of(profile)[at]:g}" for at in np.flatnonzero(profile.mass == value).tolist()]
    if len(held) > 3:
        return f"{len(held)} of {profile.tokens} places"
    return f"{'place' if len(held) == 1 else 'places'} {' and '.join(held)}"


def _sure(profile: Profile, claims: tuple[Judged, ...]) -> str:
    samples = 0 if profile.samples is None else len(profile.samples)
    if samples < 2:
        return (
            "How sure that is, is not known: the file has one number for each place, not those of several trials "
            "or prompts."
        )
    rows = str(profile.attrs.get("rows", "prompts" if profile.kind != "rate" else "trials"))
    told = [f"Every number is a mean over {samples} {rows}."]
    if counts := sorted({of for _, of in profile.attrs.get("counts", ())}):
        told = [f"Every number is a share of {' to '.join(map(str, counts[:1] + counts[1:][-1:]))} answers."]
    told += [f"{doubt[0].upper()}{doubt[1:]}." for doubt in profile.doubts]
    if profile.attrs.get("able") is False:
        told.append("The answers are not told from guessing: the curve may show where the model copies from.")
    elif profile.kind == "rate":
        effort = f"{samples} {rows}"
        said = verdict_of_trials(np.asarray(profile.samples, dtype=np.float64), effort, profile.measures)
        told += [f"{one[0].upper()}{one[1:]}." for one in said]
    else:
        told += [_end(claim) for claim in claims]
    return " ".join(told)


def _end(claim: Judged) -> str:
    """A claim's verdict as a sentence, with the difference and its error."""
    gap = claim.estimate
    by = f" ({gap.value:+.2g}, standard error {gap.se:.2g})" if gap.known and gap.se else ""
    if claim.verdict == "undecided":
        return f"Whether {claim.sentence[0].lower()}{claim.sentence[1:]} is not told{by}."
    return (
        f"{claim.sentence if claim.verdict == 'holds' else claim.sentence.replace(' is ', ' is not ')}{by}."
    )


def _prompt(profile: Profile) -> str:
    job = profile.attrs.get("job")
    if isinstance(job, Mapping) and job.get("task") == "documents":
        return (
            "It tells at which places of your own documents these answers were right, with all else the same. "
            "‘posbias order’ puts documents in order by it. Other questions may do otherwise."
        )
    if profile.kind == "rate":
        return (
            "It tells at which places answers were right in the trials of this file. Whether your own documents "
            "and questions do alike has to be tried: ‘posbias retrieve --trials’ moves them from place to place."
        )
    when = "if influence goes as this theory says" if _is_computed(profile) else "by the method of this file"
    return (
        f"It tells which positions weigh most in what the model writes next, {when}. Weight is "
        "not use: whether a fact is found there is another question, which ‘posbias retrieve’ asks."
    )
