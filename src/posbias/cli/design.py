"""`posbias design`: architectures whose predicted influence meets a target, against cache and reach."""

from pathlib import Path
from typing import Any

from posbias.cli import options as shared
from posbias.cli.mixing import with_mixing
from posbias.cli.output import COMPILING, answer_with, resumable
from posbias.core.terminal import plain, table
from posbias.reports import answers, plots

ANSWER, SHOWN = "design.json", 20
SHARES, COSTS = ("first 5 %", "middle half", "last 5 %"), ("KV cache", "keys in cache", "keys read per token")


@shared.options
class Options:
    """What is wanted, what may change, and where the answer goes.

    Parameters
    ----------
    vary
        What may change, and between what: window=64:1024:5 (5 values), depth=4:24 or full_period=1,2,4; once
        for each quantity. Quantities are those of `posbias predict --vary`, but for tokens.
    target
        flat; middle=0.5 (at least this share of the mass in the middle half); reach=2000 (at least this many of
        the last tokens to hold 90 % of it); or a file with a curve: a measurement's .nc, JSON of
        `posbias predict`, a list of weights, an architecture.
    within
        Up to which distance the target is met. Default: 0.02 of the text for a curve, else 0.
    tokens
        Length of the text. Default: the file's `tokens`, else 256.
    mixing
        Weight of attention in every layer instead of the file's, as for `posbias predict`.
    evaluations
        How many architectures are predicted at most: all that there are, if they are no more, else those that
        evolution chooses.
    out
        The folder for design.json and a TOML file for each design. Default: results/designs/NAME-TARGET.
    plot
        Draw the front to this file (.png, .svg or .pdf).
    """

    vary: shared.Words = ()
    target: str = "flat"
    within: float | None = None
    tokens: shared.Whole | None = None
    mixing: str | None = None
    evaluations: shared.Whole = 2000
    seed: shared.Seed = 0
    threads: shared.Threads = None
    out: shared.Folder | None = None
    plot: Path | None = None
    json: shared.Json = False


def design(architecture: str, *, options: Options = Options()) -> None:
    """Design architectures whose windows, slopes, depth and λ come near a wanted profile, by theory alone.

    Writes the Pareto front of distance to the target against keys in the cache and reach, each design as a TOML
    file that `posbias predict` takes. An interrupted search goes on when the same command is given again.

    Parameters
    ----------
    architecture
        The baseline, as for `posbias predict`: what does not change is as it has it.
    """
    from posbias.core.store import file_of_job
    from posbias.designs import DesignJob
    from posbias.designs.space import Space, target_of
    from posbias.theory.configs import read_architecture
    from posbias.theory.variation import values_of

    base, written_for = read_architecture(architecture)
    if options.mixing is not None:
        base = with_mixing(options.mixing, base)
    varied: dict[str, Any] = {}
    for name, values in map(values_of, options.vary):
        if name in varied:
            raise shared.wrong("vary", "each quantity once", name)
        varied[name] = values
    tokens = written_for or 256 if options.tokens is None else options.tokens
    target = target_of(options.target, tokens, options.within)
    named = Path(options.target).stem if Path(options.target).exists() else options.target
    place = options.out or shared.RESULTS / "designs" / f"{Path(architecture).stem}-{named}"
    shared.check_targets(place / ANSWER, options.plot, architecture, options.target, options.mixing)
    job = DesignJob(Space(base, varied), target, tokens, options.evaluations, options.seed)
    file, finished = file_of_job(place, ANSWER, lambda file: _held(file).get("fingerprint"), job.fingerprint)
    folder = file.parent
    if finished:
        answer = answers.Design.read(_held(file), str(file))
    else:
        answer = _designed(job, folder, Path(architecture).stem, options.threads)
    if options.plot is not None:
        shown = answer.front, answer.baseline, answer.target.within
        plots.save_figure(plots.drawing(plots.draw_designs, *shown), options.plot)
    answer_with(answer, lambda: _lines(answer, folder), options.json)


def _held(file: Path) -> dict[str, Any]:
    """What a file of an answer holds."""
    from posbias.core.formats import parse_json, undamaged

    return undamaged(parse_json(file), file)


def _designed(job: Any, folder: Path, name: str, threads: int | None) -> "answers.Design":
    """Search, and write the designs, the answer last."""
    from dataclasses import replace

    from posbias.core.files import write_text
    from posbias.core.formats import save_json
    from posbias.designs.space import toml_of

    kept = folder / f".design-{job.of_costs}.partial.npz"
    with resumable("architectures", COMPILING) as on_event:
        found = job.run(threads, kept, on_event)
    files = [f"design-{number:02}.toml" for number in range(1, len(found.front) + 1)]
    answer = answers.Design.of(found, files=files)
    for number, (one, file) in enumerate(zip(found.front, files, strict=True), 1):
        about = f"design {number} for {found.target.name}, {found.tokens:,} tokens: distance {one.distance!r}"
        named = replace(one.architecture, name=f"{name}-design-{number:02}")
        remarks = (about, answer.assumptions[0])
        write_text(folder / file, toml_of(named, remarks, tokens=found.tokens))
    save_json(answer.as_json(), folder / ANSWER)
    kept.unlink(missing_ok=True)
    return answer


def _lines(answer: "answers.Design", folder: Path) -> list[str]:
    """The verdict, the front as a table, what is theory."""
    from posbias.theory.cache import gigabytes
    from posbias.theory.prediction import said_under

    names, known = list(answer.varied), any(one.nearer for one in answer.front)

    def near(name: str, one: Any) -> list[str]:
        return [name, f"{one.distance:.4f}", f"{one.reach:,}", "yes" if one.meets else "no"]

    def row(name: str, one: Any) -> list[str]:
        of = [said_under(one.nearer).partition(" (")[0] if one.values else ""] * known
        shares = [f"{share:.1%}" for share in one.shares]
        costs = [gigabytes(one.size), f"{one.cache:,}", f"{one.read:,}"]
        varied = [plain(one.values[key]) if key in one.values else "" for key in names]
        return [*near(name, one), *of, *shares, *costs, *varied]

    rows = [row("baseline", answer.baseline)]
    recency = near("1/(distance + 1)", answer.baselines["recency_only"])
    rows.append(recency + [""] * (len(rows[0]) - len(recency)))
    rows += [row(one.file, one) for one in answer.front[:SHOWN]]
    more = len(answer.front) - SHOWN
    looked = f"{answer.looked_at:,} of {answer.space:,} architectures at {answer.tokens:,} tokens"
    if answer.impossible:
        looked += f", {answer.impossible:,} combinations impossible"
    nearer = ["nearer than the baseline"] * known
    return [
        answer.said,
        "",
        *table(["", "distance", "reach", "meets", *nearer, *SHARES, *COSTS, *names], rows),
        *([f"… and {more} more in {ANSWER}"] if more > 0 else []),
        "",
        f"target: {answer.target.name}, within {answer.target.within:g}; {looked}",
        *answer.assumptions,
        f"designs: {folder}",
    ]
