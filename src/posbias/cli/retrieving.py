"""The command that asks a model for one fact at one place after another."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posbias.cli.asking import DEFAULT_MODEL, Loading, need_model
from posbias.cli.speaking import Again, Json, Whole, answer_with, bar_of, say
from posbias.errors import InvalidValueError
from posbias.files import need_writable
from posbias.terminal import table

if TYPE_CHECKING:
    import xarray as xr

    from posbias.measurement import LoadedModel
    from posbias.measurement.retrieval import RetrievalJob
    from posbias.retrieval.statistics import RetrievalCurve

FILE = "retrieval.nc"
_SHORT = 256
_LOADING = Loading()
PICTURES = ("retrieval.svg", "retrieval.png")


def retrieve(
    model: str = DEFAULT_MODEL,
    *,
    task: Literal["keys", "needle"] = "keys",
    pairs: Whole | None = None,
    length: Whole | None = None,
    positions: Whole | None = None,
    prompts: Whole = 64,
    wording: str | None = None,
    text: str | None = None,
    seed: Whole = 0,
    loading: Loading = _LOADING,
    measurement: Path | None = None,
    out: Path | None = None,
    again: Again = False,
    json: Json = False,
) -> None:
    """Ask a model for a fact that stands first, last or in between, and see where it finds it.

    Writes retrieval.nc and the curve as SVG and PNG. An interrupted run goes on from its finished prompts when
    the same command is given again.

    Parameters
    ----------
    model
        A name that `posbias models` lists, a model folder, a .gguf file, or the id of a model on a hub.
    task
        keys: a list of who owns what, and a question for one owner. needle: one fact in running text.
    pairs
        Pairs in the list (keys). Default: 5, unless --length is given.
    length
        Tokens of a prompt: as many pairs as fit (keys), or text and question (needle). Default: 256 (needle).
    positions
        Places of the answer, evenly from first to last, at least 3. Default: 5, or all pairs if they are fewer.
    prompts
        Trials: each has its own facts and order, and is asked at every place.
    wording
        keys: json, list, belongs or chat. needle: plain or chat. Default: the first.
    text
        Text that the needle lies in, as for `posbias measure`. Default: the bundled State of the Union addresses.
    seed
        Seed of facts, order and text.
    measurement
        A measurement's .nc of the same model: its influence by position is drawn beside the curve.
    out
        The folder to write to. Default: results/NAME.
    again
        Ask even if the folder holds this job already; the new one is written beside it.
    json
        Print JSON on stdout.
    """
    from posbias.measurement import read_text
    from posbias.measurement.retrieval import retrieval_job
    from posbias.retrieval.statistics import retrieval_curve
    from posbias.store import load_measurement

    job = retrieval_job(
        task, pairs=pairs, length=length, wording=wording, positions=positions, prompts=prompts, seed=seed
    )
    if out is not None and out.suffix:
        raise InvalidValueError(f"out: {str(out)!r} given, a folder needed (the answer is several files)")
    need_model(model)
    place = out or _results(model, job, text)
    need_writable(place)
    beside = None if measurement is None else load_measurement(measurement)
    if job.task == "needle":
        read_text(text)
    loaded = loading.load(model, job.length or _SHORT)
    if beside is not None:
        _check_same_model(beside, loaded, measurement)
    retrieval, folder = _retrieval(loaded, job, text, place, again)
    curve = retrieval_curve(retrieval)
    pictures = _draw(curve, folder, beside)
    answer = {
        "file": str(folder / FILE),
        "pictures": [str(picture) for picture in pictures],
        **curve.as_dict(),
    }
    answer_with(answer if json else None, lambda: [*_lines(curve), "", f"retrieval: {folder / FILE}"])


def _retrieval(
    loaded: "LoadedModel", job: "RetrievalJob", text: str | None, place: Path, again: bool
) -> "tuple[xr.Dataset, Path]":
    """Ask, or take what is there: the dataset and its folder."""
    from posbias.measurement import discard_checkpoint
    from posbias.measurement.retrieval import retrieval_fingerprint
    from posbias.measurement.retrieval import retrieve as ask
    from posbias.store import load_retrieval, save_retrieval

    fingerprint = retrieval_fingerprint(loaded, job, text)
    places = _places(place)
    while (folder := next(places)).exists() and (folder / FILE).exists():
        found = load_retrieval(folder / FILE)
        if found.attrs.get("fingerprint") == fingerprint and not again:
            say(f"already asked: {folder / FILE} (--again asks anew)")
            return found, folder
    checkpoint = folder / f".retrieval-{fingerprint[:12]}.partial.npz"
    done = [0]
    with bar_of("prompt") as progress:

        def count(finished: int, total: int) -> None:
            done[0] = finished
            progress(finished, total)

        try:
            retrieval = ask(loaded, job, text=text, checkpoint=checkpoint, progress=count, say=say)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"{done[0]} of {job.prompts} prompts are kept, the same command goes on from there"
            ) from None
    save_retrieval(retrieval, folder / FILE)
    discard_checkpoint(checkpoint)
    return retrieval, folder


def _check_same_model(beside: "xr.Dataset", loaded: "LoadedModel", measurement: Path | None) -> None:
    if beside.attrs.get("checksum") != loaded.checksum:
        raise InvalidValueError(
            f"measurement: {measurement} is of the model {beside.attrs.get('model')!r} (or other weights of it), "
            f"one of {loaded.name!r} needed"
        )


def _draw(curve: "RetrievalCurve", folder: Path, beside: "xr.Dataset | None") -> list[Path]:
    from posbias.plots import save_figure
    from posbias.plots.behaviour import retrieval_figure

    measured, others = None, None
    if beside is not None:
        from posbias.predictors import measured_influence
        from posbias.profile import Profile

        measured = measured_influence(beside)
        if "rollout_energy" in beside:
            attrs = {"predictor": "energy rollout"}
            rollout = beside["rollout_energy"].values
            others = {"energy": Profile.from_samples(rollout, measures="rollout", attrs=attrs)}
    figure = retrieval_figure(curve, measured, others)
    return [save_figure(figure, folder / name) for name in PICTURES]


def _lines(curve: "RetrievalCurve") -> list[str]:
    """The curve as a table and in words."""
    rows = [
        [
            str(k),
            f"{curve.depth[k]:.2f}",
            f"{curve.token[k]:.0f}",
            *(_share(curve.curves[name][k]) for name in ("accuracy", "choice")),
            *(str(curve.curves[name][k]) for name in ("margin", "control_margin", "lift")),
        ]
        for k in range(len(curve.depth))
    ]
    head = ["position", "place", "token", "written", "preferred", "margin", "asked for another", "lift"]
    what = f"{curve.prompts} prompts of about {curve.tokens:.0f} tokens; chance {curve.chance:.2f}; others in nats"
    return [*table(head, rows), "", what, *curve.sentences()]


def _share(share: Any) -> str:
    return f"{share.value:.2f} [{share.interval[0]:.2f}, {share.interval[1]:.2f}]"


def _results(model: str, job: "RetrievalJob", text: str | None) -> Path:
    """results/NAME, where NAME says model, task and size, and what is not the default."""
    size = f"{job.pairs}pairs" if job.pairs is not None else f"{job.length}tokens"
    name = f"{Path(model).name}-{job.task}-{size}-{job.wording}-{job.positions}x{job.prompts}"
    name += f"-{Path(text).stem}" if text is not None else ""
    return Path("results") / (name + (f"-seed{job.seed}" if job.seed else ""))


def _places(place: Path) -> Iterator[Path]:
    """`place`, then the names beside it: folder-2, folder-3, …"""
    yield place
    yield from (place.with_name(f"{place.name}-{number}") for number in itertools.count(2))
