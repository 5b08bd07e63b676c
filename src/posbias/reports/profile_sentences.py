"""What is said of one profile: its verdict, ends, trough and how sure that is, a sentence each.

Each is made here once; a terminal prints them as lines, an answer in JSON and a page have them as they are.
"""

from collections.abc import Sequence

from posbias.core.files import data_table
from posbias.profiles.curves import blocks
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile

CAPTIONS = data_table(__file__, "captions.toml")
VERDICTS, SENTENCES = CAPTIONS["verdicts"], CAPTIONS["sentences"]
"""By verdict what a model of it `favours`, and what `weighs` more in its prompts; sentences, some to be filled."""
SAME = "the same without the first token, and without the query's own"
"""After a verdict that does not rest on one token."""


def headline(profile: Profile) -> str:
    """What a curve shows, in a line: its verdict, or why there is none."""
    if profile.kind == "mass":
        if profile.left_out:
            return f"No verdict: {profile.caveat}"
        verdict = profile.summary.verdict or "flat"
        doubted = ": its prompts do not decide that" if profile.doubts else ""
        return f"{profile.name or 'The model'} favours {VERDICTS[verdict]['favours']} ({verdict}){doubted}"
    if profile.places is None or profile.samples is None or len(profile.samples) < 2:
        return f"{profile.measures} of {profile.tokens} places: no verdict"
    verdict = profile.places.verdict_in_words.partition(";")[0]
    return f"{verdict[:1].upper()}{verdict[1:]}"


def lead(profile: Profile) -> str:
    """For whom it holds, and of how many questions or prompts."""
    many = 0 if profile.samples is None else len(profile.samples)
    if profile.kind == "mass":
        size = f"{profile.tokens:,} tokens" + (f" of the text ‘{profile.text}’" if profile.text else "")
        return f"{many} prompts of {size}" if many else f"{profile.measures} of {size}"
    if answers := sorted({all_ for _, all_ in profile.counts or ()}):
        span = " to ".join(map(str, dict.fromkeys((answers[0], answers[-1]))))
        asked = f"{span} questions at each of {profile.tokens} places"
    else:
        asked = f"{f'{many} questions, each' if many > 1 else 'one number'} at {profile.tokens} places"
    return ", ".join(filter(None, (profile.name, asked)))


def describe(profile: Profile) -> list[str]:
    """A profile for a person: the shape in blocks and the statistics in words, a line each."""
    s = profile.summary
    first, middle, last = s.ratio
    shape, verdict = blocks(profile.mass[: profile.query + 1]), verdict_line(profile)
    within = "" if s.reaches_all else f"90 % of the mass within {s.effective_range} tokens of the query; "
    same = s.verdict is not None and s.verdict_without_first == s.verdict == s.verdict_without_last
    lines = [verdict, shape] if profile.left_out else [shape, verdict]
    lines += [*(s.ends_alone or [SAME] * same), *surety(profile), ends_line(profile)]
    lines.append(f"density first : middle : last = {first:.2f} : {middle:.2f} : {last:.2f} (uniform = 1)")
    lines.append(f"{trough_line(profile)}{' (cross-fitted)' if profile.cross_fitted else ''}")
    lines += [*out_of_reach(profile), f"{within}entropy {s.entropy:.2f} nats", *under_known(profile)]
    if profile.missing_mass:
        lines.append(f"learned sinks took {profile.missing_mass:.2%}")
    if profile.method:
        layers = (f"{name} ({count} layer{'s' * (count > 1)})" for name, count in profile.method.items())
        lines.append(f"computed by {', '.join(layers)}")
    return [*lines, *(profile.calibration.lines() if profile.calibration else ())]


def verdict_line(profile: Profile) -> str:
    """'verdict: U', or why there is none and what would settle it."""
    from posbias.theory.huggingface_families import UNMEASURED
    from posbias.theory.prediction import said_under

    most, under = profile.band.verdict if profile.band else (None, {})
    counted = f" under {said_under(under)}" if under else ""
    if not profile.left_out:
        return f"verdict: {profile.summary.verdict}{counted}"
    others = [part for part in profile.left_out if not part.startswith("λ")]
    if most is not None and not others:
        computed = "" if "λ" in profile.left_out else f"{profile.caveat}; as computed "
        return f"no verdict: {computed}{most}{counted}; --mixing gives λ"
    if not UNMEASURED.isdisjoint(others) or any("(the model has" in part for part in others):
        return f"no verdict: {profile.caveat}"
    settles = "--calibrate FILE.nc takes it from a measurement" if others else "--mixing gives it"
    if others and profile.calibration:
        settles = "`posbias measure` at this length decides"
    return f"no verdict: {profile.caveat}; {settles}"


def surety(profile: Profile) -> list[str]:
    """What of its verdict the prompts do not tell, or that they decide it; nothing where there are none."""
    if profile.kind != "mass" or profile.samples is None or profile.left_out:
        return []
    prompts = len(profile.samples)
    return profile.doubts or [
        f"95 % intervals over {prompts} prompts decide for each end whether it is favoured"
    ]


def ends_of(profile: Profile) -> tuple[Estimate, Estimate]:
    """Shares of the first and of the last 5 % of positions, with their standard errors over prompts."""
    s = profile.summary
    first, last = profile.share(0, s.ends), profile.share(s.tokens - s.ends, s.tokens)
    return Estimate(s.first_mass, first.se, first.n), Estimate(s.last_mass, last.se, last.n)


def ends_line(profile: Profile) -> str:
    """'the first 3 hold 1.16 ± 0.24 %, the last 3 39.9 ± 7.0 % (an even share is 4.7 %)'."""
    s, (first, last) = profile.summary, ends_of(profile)
    even = f"an even share is {100 * s.ends / s.tokens:.2g} %"
    return f"the first {s.ends} hold {percent(first)}, the last {s.ends} {percent(last)} ({even})"


def trough_line(profile: Profile, span: tuple[int, int] | None = None) -> str:
    """'influence is least around position 13 of 0 … 63: 68 ± 9 % below uniform'; `span` holds it in resamples."""
    s = profile.summary
    where = f"around position {s.trough} of 0 … {s.query}"
    if span is not None and profile.samples is not None:
        resampled = f"95 % of resamples of the {len(profile.samples)} prompts"
        where += f" ({span[0]} to {span[1]} in {resampled})"
    even = "the mean of the positions in reach" if s.out_of_reach else "uniform"
    return f"influence is least {where}: {percent(profile.trough_depth)} below {even}"


def out_of_reach(profile: Profile) -> list[str]:
    """How many positions have no influence at all; nothing where all have some."""
    s = profile.summary
    return [f"{s.out_of_reach:,} of {s.tokens:,} positions are out of reach"] if s.out_of_reach else []


def under_known(profile: Profile) -> list[str]:
    """What would be predicted with the λ of each model whose λ is known, if λ was not given."""
    band, ends = profile.band, profile.summary.ends
    if band is None:
        return []

    def held(models: Sequence[str], end: str) -> str:
        shares = sorted(getattr(band.shapes[name], f"{end}_mass") for name in models)
        span = dict.fromkeys(f"{share:.2%}" for share in (shares[0], shares[-1]))
        return f"the {end} {ends:,} hold {' to '.join(span)}"

    given = {f"with λ of each of {len(band.models)} pretrained models": band.models}
    given |= {f"with λ by norms, of {', '.join(band.checks)},": band.checks} if band.checks else {}
    return ["; ".join(f"{words} {held(of, 'first')}, {held(of, 'last')}" for words, of in given.items())]


def paragraph(*said: str) -> str:
    """Sentences as running text."""
    return " ".join(f"{one[:1].upper()}{one[1:]}." for one in said)


def percent(estimate: Estimate) -> str:
    """A share as '28.4 ± 1.4 %', with the digits its error allows; three where that is not known."""
    if not estimate.se > 0:
        return f"{100 * estimate.value:.3g} %".replace("-", "−")
    return f"{Estimate(100 * estimate.value, 100 * estimate.se, estimate.n)} %".replace("-", "−")
