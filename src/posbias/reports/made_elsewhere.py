"""A profile read from elsewhere as a page: what it was taken for, its curve, its ends against its middle."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from posbias.claims import Claim, Judged, judged
from posbias.errors import InvalidValueError
from posbias.estimate import t_95
from posbias.evidence import LEAST, Above, Evidence, mean
from posbias.files import write_bytes, write_text
from posbias.profile import Profile
from posbias.reports.pages import Page, Table
from posbias.signatures import typed

ENDS = {"first": 0, "last": -1}


@dataclass(frozen=True)
class ProfileReport:
    """What was written and found: the `page`, its `figures`, and the `claims` on the ends of the curve."""

    page: Path
    figures: list[Path]
    claims: tuple[Judged, ...]


@typed
def end_claims(profile: Profile) -> tuple[Judged, ...]:
    """Whether the first and the last place lie above the middle one, judged by paired differences of the samples.

    Differences of rates count from 0.02 on; other numbers have no such scale. Without two samples, or with samples
    that all differ alike, a claim is undecided.
    """
    middle, rows = profile.tokens // 2, profile.samples
    told = []
    for name, place in ENDS.items():
        claim = Claim(
            f"elsewhere/{name}-above-middle",
            "results made elsewhere",
            f"The {name} place is above the middle one",
            test=Above(least=LEAST if profile.kind == "rate" else 0.0),
            provenance="ours",
            scope=str(profile.attrs.get("read_as", profile.measures)),
            effort=f"{0 if rows is None else len(rows)} samples",
        )
        where = f"{profile.measures} at place {place % profile.tokens} minus {middle}"
        if rows is None:
            piece = Evidence(where, flaw="no samples")
        else:
            gaps = (
                np.asarray(rows, dtype=np.float64)[:, place] - np.asarray(rows, dtype=np.float64)[:, middle]
            )
            piece = mean(where, gaps, draws="samples")
            if len(gaps) > 1 and not gaps.std():
                piece = Evidence(where, flaw=f"{gaps[0]:g} in all {len(gaps)} samples, which have no error")
        told.append(judged(claim, [piece]))
    return tuple(told)


@typed
def write_profile_report(profile: Profile, folder: str | os.PathLike[str], *, title: str) -> ProfileReport:
    """Write `report.md` and the curve (`profile.svg`, `profile.png`) into a folder.

    Raises `MissingPackageError` without matplotlib, `OutputFileError` if a file cannot be written, and
    `InvalidValueError` for a profile of fewer than three positions.
    """
    if profile.tokens < 3:
        raise InvalidValueError(f"profile: {profile.tokens} positions given, three or more needed")
    from posbias.plots import draw_profile, new_figure, picture_bytes

    figure = new_figure()
    draw_profile(figure.subplots(), profile)
    drawn = [
        write_bytes(Path(folder) / f"profile.{kind}", picture_bytes(figure, kind)) for kind in ("svg", "png")
    ]
    claims = end_claims(profile)
    page = Page(title, str(profile.attrs.get("read_as", profile.measures)), (_table(profile),), claims)
    return ProfileReport(write_text(Path(folder) / "report.md", page.markdown()), drawn, claims)


def _table(profile: Profile) -> Table:
    """Each place with its number and 95 % interval (Student's t over samples), of a rate as far as that goes."""
    places = profile.attrs.get("places", range(profile.tokens))
    least, most = (0.0, 1.0) if profile.kind == "rate" else (-np.inf, np.inf)
    samples = 0 if profile.samples is None else len(profile.samples)
    rows = []
    for number, place in enumerate(places):
        interval = "–"
        if profile.se is not None and samples > 1:
            reach = t_95(samples - 1.0) * float(profile.se[number])
            low, high = max(least, profile.mass[number] - reach), min(most, profile.mass[number] + reach)
            interval = f"{low:.4g} to {high:.4g}"
        rows.append([f"{place:g}", f"{profile.mass[number]:.4g}", interval])
    return Table(
        f"{profile.measures} by place, {samples} samples", ["place", profile.measures, "95 % interval"], rows
    )
