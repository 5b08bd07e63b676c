"""`posbias compare`: a profile against a reference."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.cli import options as shared
from posbias.cli.output import answer_with, read_as
from posbias.cli.terminal import comparison_table
from posbias.core.terminal import table
from posbias.reports import answers, plots

if TYPE_CHECKING:
    from posbias.comparison.scores import Comparison
    from posbias.profiles.profile import Profile


def compare(
    p: Path,
    q: Path,
    *,
    by_share: shared.Flag = False,
    plot: shared.Plot = None,
    tokens: shared.ContextLength = None,
    columns: shared.Columns = None,
    seed: shared.Seed = 0,
    json: shared.Json = False,
) -> None:
    """Compare a profile with a reference: Spearman and 1-Wasserstein, with baselines and the noise ceiling.

    Two retrievals: how much more the first finds than the second, and whether position matters more to one, within
    trials where these are the same. Two measurements: where they differ (at the first positions, in the middle or
    at the last), within prompts where both measured the same.

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
    from posbias.imports import read_several
    from posbias.imports.columns import Choice

    shared.check_targets(None, plot, p, q)
    profile, reference = read_several((p, q), Choice(None, tokens, columns or {}))
    comparison = compare(profile, reference, by_share=by_share, seed=seed)
    if plot is not None:
        agreements, profiles = ({p.name: of["p"]} for of in (comparison.agreements, comparison.profiles))
        named_so = replace(comparison, agreements=agreements, profiles=profiles)
        plots.save_figure(plots.drawing(plots.draw_comparison, named_so), plot)
    names = (p.name, q.name) if p.name != q.name else (str(p), str(q))
    named = dict(zip(names, (profile, reference), strict=True))
    more, lines = (_rates if comparison.between is not None else _masses)(
        comparison, names, profile, reference
    )
    scores = vars(comparison.agreements["p"])
    keys = ("prompts", "baselines", "reliability", "leads", "shares", "same_prompts")
    answer = answers.Compare.of(
        **{name: score.value for name, score in scores.items()},
        intervals={name: score.bounds for name, score in scores.items()},
        **{name: getattr(comparison, name) for name in keys},
        left_out=[*profile.left_out, *reference.left_out],
        read_as=read_as({"p": profile, "q": reference}),
        **more,
    )
    answer_with(answer, lambda: [*_notes(comparison, named), *lines], json)


def _rates(
    comparison: "Comparison", names: tuple[str, str], profile: "Profile", reference: "Profile"
) -> tuple[dict[str, Any], list[str]]:
    """What two curves of rates with trials differ in: for JSON, and in sentences and a table by place."""

    between = comparison.between
    assert between is not None
    dull = tuple(names["pq".index(one)] for one in between.dull)
    between = replace(between, way=names[0], against=names[1], dull=dull)
    sentences = between.sentences()
    answer = {"between": answers.CurveDifference.of(between, answer=sentences)}
    columns = [
        [
            f"{value:.2f} [{low:.2f}, {high:.2f}]"
            for value, low, high in zip(one.mass, *one.limits, strict=True)
        ]
        for one in (profile, reference)
        if one.limits is not None
    ]
    if profile.tokens != reference.tokens or len(columns) < 2:
        return answer, sentences
    places = [f"{place:g}" for place in profile.at]
    rows = list(map(list, zip(places, *columns, strict=True)))
    return answer, [*sentences, "", *table(["place", *names], rows)]


def _masses(
    comparison: "Comparison", names: tuple[str, str], profile: "Profile", reference: "Profile"
) -> tuple[dict[str, Any], list[str]]:
    """Where two profiles differ, and what attributions hold beyond position: for JSON, and as lines."""
    from posbias.comparison.differences import influence_differences, prior_normalised, residuals, sentence
    from posbias.imports.columns import MEASURES

    answer, sentences, name = {}, [], Path(names[0]).name
    differences = influence_differences(profile, reference, shares=comparison.shares)
    if differences is not None:
        answer["influence_differences"] = answers.InfluenceDifferences.of(
            differences, answer=differences.sentence()
        )
        sentences.append(differences.sentence(*names))
    sentences += [f"{name}: {words}" for words in comparison.sentences().values()]
    compared, prior = comparison.profiles["p"], comparison.reference
    if compared.measures == MEASURES and prior.kind == "mass" and (prior.mass > 0).all():
        normalised = prior_normalised(compared, prior)
        answer["beyond_position"] = residuals(normalised)
        sentences.append(f"{name}: {sentence(answer['beyond_position'], normalised)}")
    return answer, [*sentences, *comparison_table(comparison, {"p": name})]


def _notes(comparison: "Comparison", named: "dict[str, Profile]") -> list[str]:
    """What was left out of the profiles, by the names of their files, and what limits the comparison."""
    notes = [f"{name}: {one.caveat}" for name, one in named.items() if one.left_out]
    (p, profile), (q, reference) = named.items() if len(named) > 1 else [*named.items()] * 2
    if comparison.between is None:
        if comparison.same_prompts is not None:
            notes.append(
                "the same prompts in both: intervals resample them together, what they share drops out"
            )
        if comparison.shares is not None:
            lengths = f"{profile.tokens:,} and {reference.tokens:,}"
            notes.append(
                f"{lengths} positions: compared at {comparison.shares:,} equal shares of the context"
            )
        if rank := [name for name, one in named.items() if one.kind != "mass"]:
            notes.append(f"{' and '.join(rank)}: no shares of a whole, so compared by rank alone")
    models = {name: one.name for name, one in named.items()}
    if all(models.values()) and len({*models.values()}) == 2:
        notes.append(
            "names of models differ: " + ", ".join(f"{name} of {one}" for name, one in models.items())
        )
    elif profile.kind == reference.kind == "rate" and profile.measures != reference.measures:
        what = " and ".join(sorted({profile.measures, reference.measures}))
        notes.append(
            f"{what} may not be the same: compared by rank; under one name their difference is given"
        )
    elif (made := profile.calibration) and (made.model, made.tokens) == (models[q], profile.tokens):
        notes.append(
            f"{p}: calibrated by a measurement of {models[q]}; if that is {q}, they agree by construction"
        )
    return notes
