"""`posbias compare`: a profile against a reference."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.cli import options as shared
from posbias.cli.architectures import need_profile
from posbias.cli.output import answer_with, read_as
from posbias.cli.terminal import comparison_table
from posbias.core.text_tables import table

if TYPE_CHECKING:
    from posbias.comparison.normalised import Residual
    from posbias.comparison.scores import Comparison
    from posbias.profiles.profile import Profile


def compare(
    p: Path,
    q: Path,
    *,
    by_share: shared.Flag = False,
    plot: Path | None = None,
    tokens: shared.ContextLength = None,
    columns: shared.Columns = None,
    seed: shared.Seed = 0,
    json: shared.Json = False,
) -> None:
    """Compare a profile with a reference: Spearman and 1-Wasserstein, beside baselines and noise.

    Of two retrievals it tells how much more the first finds than the second, and whether position matters more to
    one: within trials where these are the same. Of two measurements it tells where they differ: at the first
    positions, in the middle or at the last, within prompts where both measured the same.

    Parameters
    ----------
    p
        The profile in question: a prediction's JSON, a JSON list of weights, the .nc of a measurement or
        retrieval, or a file or folder of results made elsewhere (docs/results-made-elsewhere.md).
    q
        The reference, in any of the same forms; a .nc brings its prompts, and so intervals and what noise allows.
    by_share
        Compare profiles of unlike length by share of the context, at as many shares as the shorter has positions.
    plot
        Draw both curves with their scores to this file (.png, .svg or .pdf).
    """
    from posbias.comparison.scores import compare
    from posbias.imports import read_one
    from posbias.imports.columns import Choice
    from posbias.reports.answers.measurements import Compare
    from posbias.reports.answers.retrievals import CurveDifference

    shared.check_targets(None, plot, p, q)
    for given in (p, q):
        need_profile(given)
    choice = Choice(None, tokens, shared.column_names(columns), shared=True)
    profile, reference = (read_one(one, choice) for one in (p, q))
    comparison = compare(profile, reference, by_share=by_share, seed=seed)
    if plot is not None:
        _draw(comparison, p.name, plot)
    answer = _scores(comparison, profile, reference)
    notes = _notes(comparison, [(p.name, profile), (q.name, reference)]) + _provenance(
        p.name, profile, q.name, reference
    )
    names = (p.name, q.name) if p.name != q.name else (str(p), str(q))
    if comparison.between is not None:
        dull = tuple(names["pq".index(one)] for one in comparison.between.dull)
        between = replace(comparison.between, way=names[0], against=names[1], dull=dull)
        answer["between"] = CurveDifference.of(between, answer=between.sentences())
        found = [*between.sentences(), *_by_place(names, profile, reference)]
    else:
        more, found = _differences(comparison, (profile, reference), names, p.name)
        answer |= more
        found += comparison_table(comparison, {"p": p.name})
    answer_with(Compare.of(**answer), lambda: [*notes, *found], json)


def _differences(
    comparison: "Comparison", profiles: "tuple[Profile, Profile]", names: tuple[str, str], name: str
) -> tuple[dict[str, Any], list[str]]:
    """Where two profiles differ, and what attributions hold beyond position: for JSON, and in sentences."""
    from posbias.comparison.influence_differences import influence_differences
    from posbias.reports.answers.measurements import InfluenceDifferences

    answer, sentences = {}, []
    differences = influence_differences(*profiles, shares=comparison.shares)
    if differences is not None:
        answer["influence_differences"] = InfluenceDifferences.with_verdict(differences)
        sentences.append(differences.sentence(*names))
    sentences += [f"{name}: {words}" for words in comparison.sentences().values()]
    if (beyond := _beyond_position(comparison)) is not None:
        answer["beyond_position"] = beyond[0]
        sentences.append(f"{name}: {beyond[1]}")
    return answer, sentences


def _scores(comparison: "Comparison", profile: "Profile", reference: "Profile") -> dict[str, Any]:
    """What is answered of any two profiles."""
    scores = vars(comparison.agreements["p"])
    names = ("prompts", "baselines", "reliability", "leads", "shares", "same_prompts")
    return {
        **{name: score.value for name, score in scores.items()},
        "intervals": {name: score.bounds for name, score in scores.items()},
        **{name: getattr(comparison, name) for name in names},
        "left_out": [*profile.left_out, *reference.left_out],
        "read_as": read_as({"p": profile, "q": reference}),
    }


def _notes(comparison: "Comparison", profiles: "list[tuple[str, Profile]]") -> list[str]:
    """What was left out of the profiles, by the names of their files, and why less than all is compared."""
    notes = [f"{name}: {one.caveat}" for name, one in profiles if one.left_out]
    if comparison.between is not None:
        return notes
    if comparison.same_prompts is not None:
        notes.append("the same prompts in both: intervals resample them together, what they share drops out")
    if comparison.shares is not None:
        lengths = " and ".join(f"{one.tokens:,}" for _, one in profiles)
        notes.append(f"{lengths} positions: compared at {comparison.shares:,} equal shares of the context")
    rank = [name for name, one in profiles if one.kind != "mass"]
    if rank:
        notes.append(f"{' and '.join(rank)}: no shares of a whole, so compared by rank alone")
    return notes


def _by_place(names: tuple[str, str], *profiles: "Profile") -> list[str]:
    """Two curves of rates side by side, with their intervals; nothing where they have unlike numbers of places."""
    from posbias.reports.numbers import places_of

    if len({one.tokens for one in profiles}) > 1:
        return []
    columns = [
        [f"{value:.2f} [{low:.2f}, {high:.2f}]" for value, low, high in zip(one.mass, *ends, strict=True)]
        for one in profiles
        if (ends := one.limits) is not None
    ]
    if len(columns) < len(profiles):
        return []
    places = [f"{place:g}" for place in places_of(profiles[0])]
    return ["", *table(["place", *names], list(map(list, zip(places, *columns, strict=True))))]


def _beyond_position(comparison: "Comparison") -> "tuple[tuple[Residual, ...], str] | None":
    """What attributions hold beside the mass they are compared with, and in words; None for other profiles."""
    from posbias.comparison.normalised import prior_normalised, residuals, sentence
    from posbias.imports.trials import MEASURES

    profile, prior = comparison.profiles["p"], comparison.reference
    if profile.measures != MEASURES or prior.kind != "mass" or not (prior.mass > 0).all():
        return None
    normalised = prior_normalised(profile, prior)
    found = residuals(normalised)
    return found, sentence(found, normalised)


def _provenance(p: str, profile: "Profile", q: str, reference: "Profile") -> list[str]:
    """That the two files are of unlike models, or that one was calibrated by a measurement such as the other."""
    of = {name: one.attrs.get("model") for name, one in ((p, profile), (q, reference))}
    if None not in of.values() and len(set(of.values())) == 2:
        return ["names of models differ: " + ", ".join(f"{name} of {model}" for name, model in of.items())]
    if profile.kind == reference.kind == "rate" and profile.measures != reference.measures:
        what = " and ".join(sorted({profile.measures, reference.measures}))
        return [f"{what} may not be the same: compared by rank; under one name their difference is told"]
    if "calibrated_by" in profile.attrs and profile.attrs["calibrated_by"] == of[q]:
        return [f"{p}: calibrated by a measurement of {of[q]}; if that is {q}, they agree by construction"]
    return []


def _draw(comparison: "Comparison", name: str, path: Path) -> None:
    """Draw a comparison, its one profile under the name of its file."""
    from posbias.reports.plots import draw_comparison, new_figure, save_figure

    agreements, profiles = ({name: of["p"]} for of in (comparison.agreements, comparison.profiles))
    figure = new_figure()
    draw_comparison(figure.subplots(), replace(comparison, agreements=agreements, profiles=profiles))
    save_figure(figure, path)
