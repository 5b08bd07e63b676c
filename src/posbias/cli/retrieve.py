"""`posbias retrieve`: a fact at one place after another, and where a model finds it."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from posbias.cli import options as shared
from posbias.cli.black_box import PICTURES, BlackBox, ask_black_box
from posbias.cli.output import answer_with, computed_once, need_folder
from posbias.cli.terminal import share_text
from posbias.core.errors import positive
from posbias.core.files import need_writable
from posbias.core.packages import need
from posbias.core.tables import table

if TYPE_CHECKING:
    import xarray as xr

    from posbias.retrieval.curve import RetrievalCurve
    from posbias.retrieval.trials import RetrievalJob

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
        A measurement's .nc of the same model: its influence by position is drawn next to the curve.
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
    asking: BlackBox = BlackBox()
    out: shared.Out | None = None
    rerun: shared.Rerun = False
    json: shared.Json = False


def retrieve(model: str | None = None, *, options: Options = Options()) -> None:
    """Measure retrieval accuracy by position of the fact: first, last or in between.

    Writes retrieval.nc and the curve as SVG and PNG. An interrupted run goes on from its finished prompts when
    the same command is given again. With --endpoint, --answers or --write-prompts the model is not opened: a
    server is asked, or answers are read; answers.jsonl and retrieval.json stand for retrieval.nc then.

    Parameters
    ----------
    model
        A model (as for `posbias measure`), the .nc of a finished retrieval, shown and drawn again, or with
        --endpoint a model of that server. Default: smollm2-135m.
    """
    need_folder(options.out)
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
    from posbias.retrieval.curve import retrieval_curve

    measured = None if options.measurement is None else load_measurement(options.measurement)
    retrieval, file, folder = (_finished if finished else _asked)(model, options, measured)
    curve = retrieval_curve(retrieval, options.equivalence)
    answer = Retrieve.of(curve, file=file, pictures=_draw(curve, folder, measured))
    answer_with(answer, lambda: [*_lines(curve), "", f"retrieval: {file}"], options.json)


def _finished(
    source: str, options: Options, measured: "xr.Dataset | None"
) -> "tuple[xr.Dataset, Path, Path]":
    """A finished retrieval, its file and the folder for its pictures."""
    from posbias.profiles.measurements import load_retrieval

    shared.refuse_with_file(options, ("measurement", "out", "json", "equivalence"), "retrieval")
    retrieval = load_retrieval(source)
    about = retrieval.attrs
    _check_same_model(measured, options.measurement, str(about.get("checksum")), str(about.get("model")))
    return retrieval, Path(source), options.out or Path(source).parent


def _asked(model: str, options: Options, measured: "xr.Dataset | None") -> "tuple[xr.Dataset, Path, Path]":
    """What a model answers, the file that it is written to or was by an earlier run, and its folder."""
    from posbias.measurement import read_text
    from posbias.measurement.streaming import Group
    from posbias.retrieval.local import retrieval_fingerprint
    from posbias.retrieval.local import retrieve as ask
    from posbias.retrieval.trials import check_text, retrieval_job

    names = ("pairs", "length", "wording", "positions", "prompts", "seed")
    job = retrieval_job(options.task, **{name: getattr(options, name) for name in names})
    if not model:
        raise shared.wrong("model", "a name, a model folder, a .gguf file or a hub id", "")
    shared.check_threads(options.threads)
    check_text(job.task, options.text)
    place = options.out or _results(model, job, options.text)
    need_writable(place)
    if job.task == "needle":
        read_text(options.text)
    loaded = options.loading.load(model, job.length or _SHORT)
    _check_same_model(measured, options.measurement, loaded.checksum, loaded.name)
    fingerprint = retrieval_fingerprint(loaded, job, options.text)
    compute = functools.partial(ask, loaded, job, text=options.text, threads=options.threads)
    asked = computed_once("retrieval", place, fingerprint, job.prompts, compute, options.rerun, Group())
    assert asked is not None  # this process is the only one
    return *asked, asked[1].parent


def _check_same_model(measurement: "xr.Dataset | None", file: Path | None, checksum: str, model: str) -> None:
    """Raise `InvalidValueError` for a measurement of another model than the one that was asked."""
    if measurement is not None and measurement.attrs.get("checksum") != checksum:
        other = measurement.attrs.get("model")
        raise shared.wrong("measurement", f"one of {model!r}", f"{file} of {other!r}, or of other weights")


def _draw(curve: "RetrievalCurve", folder: Path, measurement: "xr.Dataset | None") -> list[Path]:
    from posbias.reports.plots import save_figure
    from posbias.reports.plots.retrieval import retrieval_figure

    measured, others = None, None
    if measurement is not None:
        from posbias.profiles.profile import Profile, measured_influence

        measured = measured_influence(measurement)
        if "rollout_energy" in measurement:
            rollout = measurement["rollout_energy"].values
            others = {"energy rollout": Profile.from_samples(rollout, measures="rollout")}
    figure = retrieval_figure(curve, measured, others)
    return [save_figure(figure, folder / name) for name in PICTURES]


def _lines(curve: "RetrievalCurve") -> list[str]:
    """The curve as a table and in words."""
    token = curve.depth if curve.token is None else curve.token
    names = {"accuracy": "written", "choice": "preferred", "margin": "margin"}
    names |= {"control_margin": "asked for another", "lift": "lift"}
    rows = []
    for k, depth in enumerate(curve.depth):
        numbers = [(name, curve.curves[name][k]) for name in names]
        shown = [share_text(one) if name in ("accuracy", "choice") else str(one) for name, one in numbers]
        rows.append([str(k), f"{depth:.2f}", f"{token[k]:.0f}", *shown])
    what = f"{curve.prompts} prompts of about {curve.tokens:.0f} tokens; chance {curve.chance:.2f}; others in nats"
    return [*table(["position", "place", "token", *names.values()], rows), "", what, *curve.sentences()]


def _results(model: str, job: "RetrievalJob", text: str | None) -> Path:
    """results/NAME, where NAME says model, task and size, and what is not the default."""
    size = f"{job.pairs}pairs" if job.pairs is not None else f"{job.length}tokens"
    name = f"{Path(model).name}-{job.task}-{size}-{job.wording}-{job.positions}x{job.prompts}"
    name += f"-{Path(text).stem}" if text is not None else ""
    return shared.RESULTS / (name + (f"-seed{job.seed}" if job.seed else ""))
