"""The commands that measure models for a paper: the residual-aware tables, and the encodings side by side."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from posbias.cli.asking import Flag, Names
from posbias.cli.papers import paper, without_claims
from posbias.cli.speaking import Again, Json, Whole, answer_with, bar_of, say
from posbias.errors import InvalidValueError
from posbias.terminal import table


@paper.command
def herasimchyk2026(
    *what: str,
    models: Names = ("tiny-alibi", "smollm2-135m"),
    corpora: Names = (),
    scramble: Flag = False,
    prompts: Whole | None = None,
    tokens: Whole = 256,
    lengths: Names = (),
    reading: Literal["corrected", "published"] = "corrected",
    configs: Path | None = None,
    bins: Whole = 199,
    full: Annotated[bool, Parameter(name="--full", negative="--quick")] = False,
    out: Path = Path("results/herasimchyk2026"),
    seed: Whole = 0,
    again: Again = False,
    json: Json = False,
) -> None:
    """Make the tables and figures of Herasimchyk et al. 2026 for any models, each with its claims judged.

    Each is written as a page (.md) and as JSON, figures as SVG and PNG too. Measurements are kept, and shared by
    all that need them; after Ctrl-C the same command goes on.

    Parameters
    ----------
    what
        table1 to table6, fig1 to fig5, section4 (monotonicity), or all; claims prints the paper's claims with
        their verdicts. Default: table2, table3 and fig2.
    models
        Names, folders, hub ids, or the .nc of finished measurements; several with commas. none: no model, for what
        the files of --configs are enough.
    corpora
        Texts to cut prompts from (.txt, .jsonl, a folder, datasets:ID), with commas; bundled is the one that is at
        hand. Default: bundled.
    scramble
        Add a control: the first text with the tokens of each prompt shuffled.
    prompts
        Prompts of each model, text and length. Default: 32, with --full 1,000, or as many as the text has.
    tokens
        Length of the prompts of all but fig1 and fig4.
    lengths
        Lengths of fig1 and fig4, with commas. Default: 64,256,512; with --full 64,256,1024,2048.
    reading
        corrected: scale, slopes and λ as the model has them. published: as the paper's code takes them.
    configs
        A folder of the authors' rollout files: levels of the paper's models, beside its printed numbers.
    bins
        Bins of table6.
    full
        The paper's effort (--full: 1,000 prompts) or minutes of a laptop (--quick, the default).
    out
        The folder to write to.
    seed
        Seed of the draw of prompts, of the bootstrap and of the null of table6.
    again
        Measure even what is there already.
    json
        Print JSON on stdout.
    """
    wanted = without_claims(what, "herasimchyk2026", out, json)
    if wanted is None:
        return
    from posbias.papers.herasimchyk2026 import make

    with _bar_of_prompts() as progress:
        made = make(
            wanted or ("table2", "table3", "fig2"),
            out,
            models=[] if models == ("none",) else models,
            corpora=[None if text == "bundled" else text for text in corpora] or [None],
            scramble=scramble,
            prompts=prompts,
            tokens=tokens,
            lengths=[_length(word) for word in lengths] or None,
            reading=reading,
            configs=configs,
            bins=bins,
            quick=not full,
            seed=seed,
            again=again,
            progress=progress,
            say=say,
        )
    if made.stand_in:
        say(made.stand_in)
    answer_with(made.as_dict() if json else None, lambda: _page_lines(made))


@paper.command
def encodings(
    *,
    models: Names = ("tiny-alibi", "tiny-nope", "tiny-rope", "tiny-window", "tiny-learned"),
    prompts: Whole = 128,
    tokens: Whole = 256,
    out: Path = Path("results/encodings"),
    seed: Whole = 0,
    again: Again = False,
    json: Json = False,
) -> None:
    """Compare small models that differ in their encoding of positions only: λ and influence, theory beside.

    No paper has this comparison; the five models come with posbias. Measurements are kept; after Ctrl-C the
    same command goes on.

    Parameters
    ----------
    models
        Names, folders, hub ids, or the .nc of finished measurements, with commas. Default: all five.
    prompts
        Prompts of each model.
    tokens
        Length of the prompts, at most 256 for these models.
    out
        The folder to write to.
    seed
        Seed of the draw of prompts and of the bootstrap.
    again
        Measure even what is there already.
    json
        Print JSON on stdout.
    """
    from posbias.papers.encodings import make

    with _bar_of_prompts() as progress:
        made = make(
            out,
            models=models,
            prompts=prompts,
            tokens=tokens,
            seed=seed,
            again=again,
            progress=progress,
            say=say,
        )
    answer_with(made.as_dict() if json else None, lambda: _page_lines(made))


def _page_lines(made: Any) -> list[str]:
    """The tables of every page, its claims, and the files."""
    lines: list[str] = []
    for name, page in made.pages.items():
        lines += [f"{name}: {page.note}"]
        for block in page.blocks:
            lines += ["", block.caption, *table(block.head, block.rows)]
        lines += ["", *(f"  {claim}" for claim in page.claims), ""]
    return [*lines, *(f"file: {path}" for path in made.files)]


def _length(word: str) -> int:
    """A length as it was typed. Raises `InvalidValueError` for what is no integer."""
    try:
        return int(word)
    except ValueError:
        raise InvalidValueError(f"lengths: {word!r} given, an integer ≥ 3 needed") from None


@contextmanager
def _bar_of_prompts() -> Iterator[Callable[[int, int], None]]:
    """A bar of prompts, anew for each measurement."""
    with ExitStack() as open_bars:
        bars: list[Callable[[int, int | None], None]] = []

        def progress(done: int, wanted: int) -> None:
            if not bars:
                bars.append(open_bars.enter_context(bar_of("prompt")))
            bars[0](done, wanted)
            if done == wanted:
                open_bars.close()
                bars.clear()

        yield progress
