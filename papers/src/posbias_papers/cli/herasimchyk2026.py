"""`posbias paper herasimchyk2026`: the tables and figures of Herasimchyk et al. 2026."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posbias.cli import options as shared
from posbias.core.arguments import whole
from posbias.core.text_tables import table
from posbias_papers.cli.claims import answer_reproduction, claims_alone

if TYPE_CHECKING:
    from posbias.reports.pages import Page


@shared.options
class Options:
    """What is measured, and where it goes.

    Parameters
    ----------
    models
        Names, folders, hub ids, or the .nc of finished measurements; several with commas. none: no model, for what
        the files of --configs are enough.
    corpora
        Texts to cut prompts from (.txt, .jsonl, a folder, datasets:ID), with commas; bundled is the one that is at
        hand. Default: bundled.
    shuffle_tokens
        Add a control: the first text with the tokens of each prompt shuffled. Default with fig4, which wants a
        second text, where it is asked for by name and one text is given.
    documents
        One prompt from the beginning of each document, instead of windows of the running text.
    loading
        How models are loaded.
    effort
        Prompts of each model, text and length: quick (32), full (1,000, as in the paper, or as many as the text
        has), or any number.
    tokens
        Length of the prompts of all but fig1 and fig4.
    lengths
        Lengths of fig1 and fig4, with commas. Default: 64,256,512; with --effort full 64,256,1024,2048.
    reading
        corrected: scale, slopes and λ as the model has them. published: as the paper's code takes them.
    bins
        Bins of table6.
    layers
        Layers that fig5 draws, from 0, with commas. Default: of all, four heads at even steps of R².
    heads
        Heads that fig5 draws, from 0, with commas; with --layers each of them in each of these.
    out
        The folder to write to.
    """

    models: shared.Names = ("tiny-alibi", "smollm2-135m")
    corpora: shared.Names = ()
    shuffle_tokens: shared.Flag = False
    documents: shared.Flag = False
    loading: shared.Loading = shared.Loading()
    effort: shared.Effort = "quick"
    tokens: shared.Whole = 256
    lengths: shared.Lengths = ()
    reading: Literal["corrected", "published"] = "corrected"
    configs: shared.Configs = None
    bins: shared.Whole = 199
    layers: shared.Lengths = ()
    heads: shared.Lengths = ()
    out: shared.Out = Path("results/herasimchyk2026")
    seed: shared.Seed = 0
    threads: shared.TorchThreads = None
    rerun: shared.Rerun = False
    json: shared.Json = False


def herasimchyk2026(*what: str, options: Options = Options()) -> None:
    """Make the tables and figures of Herasimchyk et al. 2026 for any models, each with its claims judged.

    Each is written as a page (.md) and as JSON, figures as SVG and PNG too. Measurements are kept, and shared by
    all that need them; after Ctrl-C the same command goes on.

    Parameters
    ----------
    what
        table1 to table6, fig1 to fig5, section4 (monotonicity), or all; claims prints the paper's claims with
        their verdicts. Default: table2, table3 and fig2.
    """
    if claims_alone(what, "herasimchyk2026", options.out, options.json):
        return
    shared.check_threads(options.threads)
    if isinstance(options.effort, int):
        whole("effort", options.effort, 2)
    settings: dict[str, Any] = {
        "models": [] if options.models == ("none",) else options.models,
        "corpora": [None if text == "bundled" else text for text in options.corpora] or [None],
        "scramble": options.shuffle_tokens or None,
        "documents": options.documents,
        "loading": vars(options.loading),
        "prompts": options.effort if isinstance(options.effort, int) else None,
        "lengths": options.lengths or None,
        "quick": options.effort != "full",
        **{
            name: getattr(options, name)
            for name in ("tokens", "reading", "configs", "bins", "layers", "heads", "seed", "threads")
        },
    }
    answer_reproduction(
        "herasimchyk2026",
        what or ("table2", "table3", "fig2"),
        options,
        lambda made: page_lines(made.pages, made.written),
        **settings,
    )


def page_lines(pages: "Mapping[str, Page]", files: Iterable[Path]) -> list[str]:
    """The tables of every page, its claims, and the files."""
    lines: list[str] = []
    for name, page in pages.items():
        lines += [f"{name}: {page.note}"]
        for shown in page.tables:
            lines += ["", shown.caption, *table([*shown.head], [[*row] for row in shown.rows])]
        lines += ["", *(f"  {claim}" for claim in page.claims), ""]
    return [*lines, *(f"file: {path}" for path in files)]
