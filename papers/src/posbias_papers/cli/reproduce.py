"""`posbias paper kim2026|wu2025|herasimchyk2026`: figures and tables of a paper, each with its claims judged."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posbias.cli import options as shared
from posbias.cli.output import COMPILING, answer_with, log, progress
from posbias.core.errors import whole
from posbias.core.terminal import table

if TYPE_CHECKING:
    from posbias_papers.pages import Page


@shared.options
class KimOptions:
    """How much is drawn, and where it goes.

    Parameters
    ----------
    effort
        Draws of all embeddings in every panel: quick (a million), full (ten million, as in the paper), or a number
        such as 1e5. quick and full are drawn from the record, which has ten million, unless --rerun or --seed is
        given; kept simulations that have more are used as they are.
    out
        The folder to write to.
    """

    effort: shared.Effort = "quick"
    out: shared.Out = Path("results/kim2026")
    seed: shared.Seed = 0
    threads: shared.Threads = None
    rerun: shared.Rerun = False
    json: shared.Json = False


def kim2026(*what: str, options: KimOptions = KimOptions()) -> None:
    """Draw the figures of Kim et al. 2026, every number with its error, and judge what the paper says of them.

    Figures are written as SVG and PNG, each with its tidy table (.csv), a page (.md) and JSON. Finished
    simulations are kept, and used by every figure that needs them; after Ctrl-C the same command goes on.

    Parameters
    ----------
    what
        fig1 to fig7, section3 (the printed probabilities), or all, the default.
    """
    drawn = shared.given(options).keys().isdisjoint({"seed", "rerun"})
    _reproduce("kim2026", what or ("all",), options, ("seed", "threads"), COMPILING, recorded=drawn)


@shared.options
class WuOptions:
    """How much is trained, on what, and where it goes.

    Parameters
    ----------
    effort
        quick (minutes of a laptop: 3 networks per cell, 1,000 to 5,000 iterations, 2,000 test sequences), full
        (the paper's: 5 networks, 100,000 iterations, 10,000 sequences), or any number of iterations, otherwise as
        full. What is on record at this effort, or whole figures at more, is drawn, not trained, unless --rerun.
    middle
        The item, from 0, that gaps call the middle: 3 is the text's fourth of eight. Default: 4, as the code.
    embedding
        What 1/d is of an embedding's components: their standard deviation (the paper's code, the default) or their
        variance (its text).
    test_direction
        The direction that a fixed vocabulary shares in tests: that of training (the paper's text, the default), or
        one drawn for each test (its code).
    out
        The folder to write to.
    """

    effort: shared.Effort = "quick"
    networks: shared.Networks = None
    middle: shared.Whole | None = None
    embedding: Literal["deviation", "variance"] = "deviation"
    test_direction: Literal["training", "drawn"] = "training"
    out: shared.Out = Path("results/wu2025")
    device: shared.Device = "cpu"
    threads: shared.TrainingThreads = None
    ray: shared.Ray = None
    gpus_per_cell: shared.GpusPerCell = 0
    rerun: shared.Rerun = False
    json: shared.Json = False


def wu2025(*what: str, options: WuOptions = WuOptions()) -> None:
    """Train the retrieval experiments of Wu et al. 2025 and draw their figures, each with its claims judged.

    Figures are written as SVG and PNG, each with its tidy table (.csv), a page with the gap of every cell (.md)
    and JSON. Trained cells are kept, and used by every figure that needs them; after Ctrl-C the same command goes
    on.

    Parameters
    ----------
    what
        The figures, fig1 to fig24, table1, curves for learning curves, masks, normalisers and anisotropy for gaps
        by mask, by what makes rows of attention and by what a vocabulary shares, observed-sinks for language
        models, or all. Default: fig2.
    """
    names = ("networks", "middle", "embedding", "test_direction", "device", "gpus_per_cell")
    drawn = shared.given(options).keys().isdisjoint({*names, "rerun"})
    how = {"workers": options.threads, "engine": shared.engine(None, options.ray, options.threads)}
    _reproduce("wu2025", what or ("fig2",), options, names, recorded=drawn, **how)


@shared.options
class HerasimchykOptions:
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
        Prompts of each model, text and length: quick (32; tables on record are drawn, not measured, unless other
        options are given), full (1,000, as in the paper) or any number; fewer where the text has no more.
    tokens
        Length of the prompts of all but fig1 and fig4.
    lengths
        Lengths of fig1 and fig4, with commas. Default: 64,256,512; with --effort full 64,256,1024,2048.
    reading
        corrected: scale, slopes and λ as the model has them. published: as the paper's code takes them.
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
    out: shared.Out = Path("results/herasimchyk2026")
    seed: shared.Seed = 0
    threads: shared.TorchThreads = None
    rerun: shared.Rerun = False
    json: shared.Json = False


def herasimchyk2026(*what: str, options: HerasimchykOptions = HerasimchykOptions()) -> None:
    """Make the tables and figures of Herasimchyk et al. 2026 for any models, each with its claims judged.

    Each is written as a page (.md) and as JSON, figures as SVG and PNG too. Measurements are kept, and shared by
    all that need them; after Ctrl-C the same command goes on.

    Parameters
    ----------
    what
        table1 to table6, fig1 to fig5, section4 (monotonicity), or all. Default: table2, table3 and fig2.
    """
    if isinstance(options.effort, int):
        whole("effort", options.effort, 2)
    names = ("documents", "tokens", "reading", "configs", "seed", "threads")
    others: dict[str, Any] = {
        "recorded": shared.given(options).keys() <= {"effort", "threads", "out", "json"},
        "models": [] if options.models == ("none",) else options.models,
        "corpora": [None if text == "bundled" else text for text in options.corpora] or [None],
        "scramble": options.shuffle_tokens or None,
        "loading": vars(options.loading),
        "lengths": options.lengths or None,
    }
    _reproduce("herasimchyk2026", what or ("table2", "table3", "fig2"), options, names, **others)


def _reproduce(
    paper: str,
    what: Sequence[str],
    options: Any,
    names: Iterable[str],
    waiting: str | None = None,
    **others: Any,
) -> None:
    """Make some of a paper with a bar, and answer with what was made.

    Options of these `names`, and `others`, are settings of the paper's `tables`.
    """
    from posbias.core.formats import dump_json
    from posbias_papers.cli.answers import reproduced
    from posbias_papers.reproduction import reproduce

    how = {name: getattr(options, name) for name in ("effort", *names)} | {"again": options.rerun, **others}
    with progress(waiting) as on_event:
        made = reproduce(paper, what, out=options.out, on_event=on_event, **how)
    for words in sorted({one.page.data.get("stand_in", "") for one in made.made.values()} - {""}):
        log.info(words)
    answer = reproduced(paper).model_validate_json(dump_json(made.as_dict()))
    pages = {name: one.page for name, one in made.made.items()}
    answer_with(answer, lambda: page_lines(pages, made.written), options.json)


def page_lines(pages: "Mapping[str, Page]", files: Iterable[Path]) -> list[str]:
    """The tables of every page, its claims, and the files."""
    lines: list[str] = []
    for name, page in pages.items():
        lines += [f"{name}: {page.note}"]
        for shown in page.tables:
            lines += ["", shown.caption, *table([*shown.head], [[*row] for row in shown.rows])]
        lines += ["", *(f"  {claim}" for claim in page.claims), ""]
    return [*lines, *(f"file: {path}" for path in files)]
