"""`posbias paper encodings`: small models that differ in their encoding of positions."""

from pathlib import Path

from posbias.cli import options as shared
from posbias.cli.output import answer_with, progress
from posbias_papers.cli.herasimchyk2026 import page_lines


@shared.options
class Options:
    """What is measured, and where it goes.

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
    """

    models: shared.Names = ("tiny-alibi", "tiny-nope", "tiny-rope", "tiny-window", "tiny-learned")
    prompts: shared.Whole = 128
    tokens: shared.Whole = 256
    out: shared.Out = Path("results/encodings")
    seed: shared.Seed = 0
    threads: shared.TorchThreads = None
    rerun: shared.Rerun = False
    json: shared.Json = False


def encodings(*, options: Options = Options()) -> None:
    """Compare small models that differ in their encoding of positions only: λ and influence, theory beside.

    No paper has this comparison; the five models come with posbias. Measurements are kept; after Ctrl-C the
    same command goes on.
    """
    from posbias_papers.encodings import make

    shared.check_threads(options.threads)
    with progress() as on_event:
        made = make(
            options.out,
            models=options.models,
            prompts=options.prompts,
            tokens=options.tokens,
            seed=options.seed,
            again=options.rerun,
            threads=options.threads,
            on_event=on_event,
        )
    pages = {"encodings": made.page}
    from posbias_papers.cli.answers import PaperEncodings

    answer_with(PaperEncodings.of(**made.as_dict()), lambda: page_lines(pages, made.written), options.json)
