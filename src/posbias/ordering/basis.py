"""Profiles to order by, of models measured for it and of files: what one is, and what it was not measured at.

The bundled ones are retrieval by place, trial by trial (`tools/order_profiles.py` makes them).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InputFileError, nearest
from posbias.imports import QUANTITY, read
from posbias.imports.trials import FEWEST_PLACES, of_rows
from posbias.ordering.search import Slots, places_of_job
from posbias.profiles.profile import Profile
from posbias.retrieval.curve import QUANTITIES

FOLDER = Path(__file__).with_name("profiles")
ALIKE = 1.5
"""How many times longer or shorter than the prompts behind a profile others may be without a word."""
MOST_CHARACTERS = 8
"""Characters of a token at most, on average over a prompt: running English has four to five."""
BASELINE = "baseline"
"""What a profile measures that was not measured."""


def basis(profile: Profile) -> str:
    """What was measured or predicted, of which model, over how many prompts."""
    kinds = {
        "gradient": "measured influence",
        "rollout": "predicted influence",
        "extrapolated": "calibrated prediction",
    }
    what = kinds.get(
        profile.measures, f"{profile.measures} by place" if profile.kind != "mass" else profile.measures
    )
    model = profile.attrs.get("model") or profile.attrs.get("architecture") or ""
    prompts = "" if profile.samples is None else f", {len(profile.samples)} prompts"
    return f"{what}{f' of {model}' if model else ''}{prompts}"


def unit(profile: Profile) -> str:
    """What worth is counted in."""
    if profile.kind == "mass":
        return "relative to uniform"
    return "nats" if profile.kind == "signed" and profile.measures in QUANTITIES else f"in {profile.measures}"


def warnings(profile: Profile, lengths: Float[np.ndarray, "document"]) -> tuple[str, ...]:
    """What the use of a profile assumes, a sentence each."""
    said = []
    if profile.left_out:
        said.append(f"the profile has no verdict: {profile.caveat}")
    if profile.kind == "mass" and profile.measures != BASELINE:
        said.append("influence is not retrieval: whether more of it finds more was not measured")
    elif profile.kind != "mass" and lengths.max() > ALIKE * lengths.min():
        said.append(
            "lengths differ: a document is taken to cover its share of the places, which was not measured"
        )
    job = profile.attrs.get("job")
    if isinstance(job, Mapping) and job.get("task") == "documents" and not places_of_job(profile):
        had = "how many documents its prompts had is not kept"
        if job.get("documents"):
            had = "its prompts had {} to {} documents".format(*job["documents"])
        said.append(f"{had}: taken for {profile.tokens}, the places asked at")
    if profile.attrs.get("able") is False:
        said.append("the profile is not above chance: it may show where the model copies from")
    return tuple(said)


def extrapolated(
    profile: Profile, slots: Slots, documents: int, in_tokens: bool | None, asked: int
) -> list[str]:
    """In what the documents differ from those measured, which were asked at `asked` places; a baseline fits all.

    `in_tokens`: whether lengths are tokens, or else characters, of which `MOST_CHARACTERS` are one token at least;
    None: no lengths are known.
    """
    said = []
    if profile.measures == BASELINE:
        return said
    job = profile.attrs.get("job")
    job = job if isinstance(job, Mapping) else {}
    places = places_of_job(profile) or profile.tokens
    if profile.kind != "mass" and documents != places:
        said.append(_other_number(profile, job, places, documents))
    if asked < profile.tokens:
        said.append(f"measured at {asked} of {profile.tokens} places, those between are taken on a line")
    measured = profile.tokens if profile.kind == "mass" else profile.attrs.get("tokens")
    whole = slots.before + slots.total + slots.after
    if measured is None or in_tokens is None:
        return said
    if in_tokens and not 1 / ALIKE <= whole / measured <= ALIKE:
        said.append(f"measured at {measured:,.0f} tokens, these are {whole:,.0f}")
    if not in_tokens and whole / MOST_CHARACTERS > ALIKE * measured:
        said.append(f"measured at {measured:,.0f} tokens, these are {whole:,.0f} characters")
    return said


def _other_number(profile: Profile, job: Mapping[str, Any], places: int, documents: int) -> str:
    """That the profile is of `places` places, and which command asks about as many documents as there are."""
    if profile.kind == "signed" and not job:
        return f"measured at {places} positions, these are {documents} documents"
    said = f"measured with {places} documents, these are {documents}"
    if job.get("task") == "documents":
        if places_of_job(profile) is None:
            said = f"measured at {places} places of the documents, these are {documents}"
            return f"{said}: `posbias retrieve --positions {documents}` asks at each"
        return f"{said}: `posbias retrieve MODEL --trials` with {documents} documents each asks about as many"
    if documents < FEWEST_PLACES:
        return said
    return f"{said}: `posbias retrieve MODEL --pairs {documents} --positions {documents}` asks about as many"


def known_profiles() -> dict[str, Path]:
    """The bundled profiles, by the name of their model."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.json"))}


def profile_of(source: str, **chosen: Any) -> Profile:
    """The profile of a model that comes along, or of whatever `posbias.read` reads, `chosen` as it takes it.

    Raises `InputFileError` for what is none of these, `MissingPackageError` for an .nc without xarray.
    """
    known = known_profiles()
    if source in known:
        if any(chosen.values()):
            raise InputFileError(
                f"{source}: expected a file of results for tokens or columns, got a known model"
            )
        held = json.loads(known[source].read_text(encoding="utf-8"))
        attrs = {key: held[key] for key in ("model", "checksum", "job", "tokens")}
        return of_places(np.array(held["samples"], dtype=np.float64), attrs)
    path = Path(source)
    if not path.suffix and not path.exists():
        close = nearest(source, known) or (
            f"; {', '.join(known)} comes along, and `posbias retrieve MODEL --endpoint URL --pairs N "
            "--positions N` measures another, into a folder to give here"
        )
        raise InputFileError(f"{source}: no such file and no profile of a known model{close}")
    return read(path, **chosen)


def of_places(samples: Float[np.ndarray, "trial place"], attrs: dict[str, Any]) -> Profile:
    """Retrieval by place as a profile, whose samples are its trials."""
    return of_rows(samples, kind="rate", measures=QUANTITY, attrs=attrs)
