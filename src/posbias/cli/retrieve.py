"""`posbias retrieve`: a fact at one place after another, and where a model finds it."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posbias.cli import options as shared
from posbias.cli.asking import PICTURES, ask_black_box
from posbias.cli.asking_options import Asking
from posbias.cli.jobs import JobFiles, computed_once
from posbias.cli.output import answer_with
from posbias.core.arguments import positive, shortened
from posbias.core.errors import InvalidValueError
from posbias.core.files import need_writable
from posbias.core.lazy import need
from posbias.core.text_tables import table

if TYPE_CHECKING:
    import xarray as xr

    from posbias.retrieval.curve import RetrievalCurve
    from posbias.retrieval.local import RetrievalJob

_SHORT = 256


@shared.options
class Options:
    """What is asked, and where the answer goes.

    Parameters
    ----------
    task
        keys: a list of who owns what, and a question for one owner. needle: one fact in running text.
    pairs
        Pairs in the list (keys). Default: 5, unless --length is given.
    length
        Tokens of a prompt: as many pairs as fit (keys), or text and question (needle). Default: 256 (needle).
    positions
        Places of the answer, evenly from first to last, at least 3. Default: 5, or all pairs or documents if
        they are fewer.
    prompts
        Trials: each has its own facts and order, and is asked at every place.
    wording
        keys: json, list, belongs or chat. needle: plain or chat. --trials: numbered, plain or chat. Default: the
        first; chat with --api chat.
    equivalence
        A difference up to this counts as none: in accuracy of a model behind a server (default 0.05), in nats
        of one that is opened (no default).
    text
        Text that the needle lies in, as for `posbias measure`. Default: the bundled State of the Union addresses.
    loading
        How the model is loaded.
    measurement
        A measurement's .nc of the same model: its influence by position is drawn beside the curve.
    out
        The folder to write to. Default: results/NAME.
    asking
        How to ask a model that is not opened here.
    """

    task: Literal["keys", "needle"] = "keys"
    pairs: shared.Whole | None = None
    length: shared.Whole | None = None
    positions: shared.Whole | None = None
    prompts: shared.Whole = 64
    wording: str | None = None
    text: str | None = None
    equivalence: float | None = None
    seed: shared.Seed = 0
    loading: shared.Loading = shared.Loading()
    threads: shared.TorchThreads = None
    measurement: Path | None = None
    asking: Asking = Asking()
    out: shared.Out | None = None
    rerun: shared.Rerun = False
    json: shared.Json = False


def retrieve(model: str | None = None, *, options: Options = Options()) -> None:
    """Ask a model for a fact that stands first, last or in between, and see where it finds it.

    Writes retrieval.nc and the curve as SVG and PNG. An interrupted run goes on from its finished prompts when
    the same command is given again. With --endpoint, --answers or --write-prompts the model is not opened: a
    server is asked, or answers are read; answers.jsonl and retrieval.json stand for retrieval.nc then.

    Parameters
    ----------
    model
        A model (as for `posbias measure`), the .nc of a finished retrieval, which is told and drawn again, or with
        --endpoint a model of that server. Default: smollm2-135m.
    """
    if options.out is not None and options.out.suffix:
        raise InvalidValueError(
            f"out: {shortened(str(options.out))} given, a folder needed (the answer is several files)"
        )
    if options.equivalence is not None:
        positive("equivalence", options.equivalence)
    if options.asking.wanted:
        ask_black_box(model, options)
        return
    model = shared.DEFAULT_MODEL if model is None else model
    finished = model.endswith(".nc")
    if not finished:
        need("torch", "xarray", work="asking a model", extra="measure")
    need("matplotlib", work="the curve", extra="report")
    from posbias.profiles.measurements import load_measurement
    from posbias.reports.answers.retrievals import Retrieve
    from posbias.retrieval.estimation import retrieval_curve

    beside = None if options.measurement is None else load_measurement(options.measurement)
    retrieval, file, folder = (_finished if finished else _asked)(model, options, beside)
    curve = retrieval_curve(retrieval, options.equivalence)
    pictures = _draw(curve, folder, beside)
    answer = Retrieve.of(curve, file=file, pictures=pictures)
    answer_with(answer, lambda: [*_lines(curve), "", f"retrieval: {file}"], options.json)


def _finished(source: str, options: Options, beside: "xr.Dataset | None") -> "tuple[xr.Dataset, Path, Path]":
    """A finished retrieval, its file and the folder for its pictures."""
    from posbias.profiles.measurements import load_retrieval

    shared.refuse_beside_file(options, ("measurement", "out", "json", "equivalence"), "retrieval")
    retrieval = load_retrieval(source)
    about = retrieval.attrs
    _check_beside(beside, options.measurement, str(about.get("checksum")), str(about.get("model")))
    return retrieval, Path(source), options.out or Path(source).parent


def _asked(model: str, options: Options, beside: "xr.Dataset | None") -> "tuple[xr.Dataset, Path, Path]":
    """What a model answers, the file that it is written to or was by an earlier run, and its folder."""
    from posbias.measurement import read_text
    from posbias.measurement.sharing import Group
    from posbias.profiles.measurements import load_retrieval, save_retrieval
    from posbias.retrieval.job import check_text
    from posbias.retrieval.local import retrieval_fingerprint, retrieval_job
    from posbias.retrieval.local import retrieve as ask

    names = ("pairs", "length", "wording", "positions", "prompts", "seed")
    job = retrieval_job(options.task, **{name: getattr(options, name) for name in names})
    shared.need_model(model)
    shared.check_threads(options.threads)
    check_text(job.task, options.text)
    place = options.out or _results(model, job, options.text)
    need_writable(place)
    if job.task == "needle":
        read_text(options.text)
    loaded = options.loading.load(model, job.length or _SHORT)
    _check_beside(beside, options.measurement, loaded.checksum, loaded.name)
    files = JobFiles("retrieval.nc", load_retrieval, save_retrieval, "asked", "asks")
    fingerprint = retrieval_fingerprint(loaded, job, options.text)
    compute = functools.partial(ask, loaded, job, text=options.text, threads=options.threads)
    asked = computed_once(files, place, fingerprint, job.prompts, compute, options.rerun, Group())
    assert asked is not None  # this process is the only one
    return *asked, asked[1].parent


def _check_beside(measurement: "xr.Dataset | None", file: Path | None, checksum: str, model: str) -> None:
    """Raise `InvalidValueError` for a measurement of another model than the one that was asked."""
    if measurement is not None and measurement.attrs.get("checksum") != checksum:
        raise InvalidValueError(
            f"measurement: {file} is of the model {measurement.attrs.get('model')!r} "
            f"(or other weights of it), one of {model!r} needed"
        )


def _draw(curve: "RetrievalCurve", folder: Path, beside: "xr.Dataset | None") -> list[Path]:
    from posbias.reports.plots import save_figure
    from posbias.reports.plots.behaviour import retrieval_figure

    measured, others = None, None
    if beside is not None:
        from posbias.profiles.influence import measured_influence
        from posbias.profiles.profile import Profile

        measured = measured_influence(beside)
        if "rollout_energy" in beside:
            attrs = {"predictor": "energy rollout"}
            rollout = beside["rollout_energy"].values
            others = {"energy": Profile.from_samples(rollout, measures="rollout", attrs=attrs)}
    figure = retrieval_figure(curve, measured, others)
    return [save_figure(figure, folder / name) for name in PICTURES]


def _lines(curve: "RetrievalCurve") -> list[str]:
    """The curve as a table and in words."""
    token = curve.depth if curve.token is None else curve.token
    rows = [
        [
            str(k),
            f"{curve.depth[k]:.2f}",
            f"{token[k]:.0f}",
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
    return shared.RESULTS / (name + (f"-seed{job.seed}" if job.seed else ""))
