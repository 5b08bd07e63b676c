"""Which sources stand behind a study of the three papers, such as wu2025/fig2."""

from posbias.papers.citations.methods import ENCODINGS, MODELS, Uses, of_experiment, of_simulation
from posbias.papers.registry import PaperStudy
from posbias.papers.theorems import STATEMENTS


def of_study(study: PaperStudy) -> Uses:
    """A figure, a table or the statements of a paper."""
    yield study.paper, study.title if study.name == STATEMENTS else f"{study.title} ({study.key})"
    if study.name == STATEMENTS:
        return
    if study.parts:
        from posbias.papers.registry import STUDIES

        for part in study.parts:
            yield from of_study(STUDIES[f"{study.paper}/{part}"])
        return
    match study.paper:
        case "wu2025":
            yield from _of_wu(study.name)
        case "herasimchyk2026":
            yield from _of_herasimchyk(study.name)
        case "kim2026":
            yield from of_simulation({})


def _of_wu(name: str) -> Uses:
    from posbias.papers.wu2025 import QUICK, STUDIES
    from posbias.spec import encode

    for setting in STUDIES[name].cells:
        yield from of_experiment(encode(QUICK.experiment(setting)))
    yield from STUDIES[name].uses


def _of_herasimchyk(name: str) -> Uses:
    yield "abnar2020", "attention rollout"
    yield ENCODINGS["alibi"]
    if name in ("table2", "table3", "table4", "table5", "fig2", "fig3"):
        yield "simonyan2014", "influence as a gradient"
        yield "wu2025", "the level without residual connections"
    for begin in ("bloom", "mpt-7b", "mpt-30b", "falcon-rw"):
        key, model = MODELS[begin]
        yield key, f"{model}, one of the paper's models"
