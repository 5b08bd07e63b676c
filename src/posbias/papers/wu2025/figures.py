"""What Figures 2 to 24 show, and the settings that have to be trained for them, each with several seeds.

A setting belongs to no figure: those that figures share are trained once. The paper does not print which depths
its residual networks have beyond 6, nor which networks its sinks are measured on: `DEEP` and, for Figures 9 to
12, depth 2 without and with residual connections are ours. Its Figures 19 and 24 are the captions of groups.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from posbias.theory.masks import Causal, Full, Mask, Prefix, SlidingWindow
from posbias.training.network import ENCODINGS, Network
from posbias.training.specification import Experiment
from posbias.training.task import RetrievalTask

Inputs = Literal["gaussian_mixture", "fixed_vocabulary"]
DEPTHS = (2, 4, 6)
DEEP = (2, 4, 6, 8, 10)
"""Depths of Figures 5 and 14."""
RELATIVE = {"no encoding": "none", "decay mask": "decay", "RoPE": "rope"}
"""Encodings of the depth figures, by what panels call them."""
ABSOLUTE = {"none": "none", "sin": "sinusoidal", "RoPE": "rope"}
"""Encodings of the figures on biased training."""
WINDOWS, PREFIXES = (5, 9, 13), (2, 4, 6)


@dataclass(frozen=True)
class Setting:
    """One setting: the network, the items that training asks for (none: all) and the inputs."""

    depth: int = 2
    residual: bool = True
    mask: Mask = field(default_factory=Causal)
    positional: str = "none"
    answers: tuple[str, ...] = ()
    inputs: Inputs = "gaussian_mixture"

    @property
    def network(self) -> Network:
        """The network to train."""
        return Network(self.depth, self.residual, self.mask, ENCODINGS[self.positional])

    @property
    def task(self) -> RetrievalTask:
        """What it is trained on."""
        task = RetrievalTask(inputs=self.inputs)
        answers = tuple(task.places[name] for name in self.answers) or None
        return RetrievalTask(inputs=self.inputs, answers=answers)

    def __str__(self) -> str:
        size = {SlidingWindow: "width", Prefix: "length"}.get(type(self.mask))
        mask = f"{self.mask.kind.replace('sliding_', '')}{f' {getattr(self.mask, size)}' if size else ''}"
        words = [mask, self.positional, f"depth {self.depth}", "residual" if self.residual else "no residual"]
        words += [f"trained on {' and '.join(self.answers)}"] if self.answers else []
        return ", ".join(words + ["fixed vocabulary"] * (self.inputs == "fixed_vocabulary"))


@dataclass(frozen=True)
class Effort:
    """How much is spent on a setting: seeds, iterations by depth, test sequences.

    `vocabulary` are the iterations where inputs are a fixed vocabulary, if these are others.
    """

    name: str
    seeds: tuple[int, ...]
    iterations: Mapping[int, int]
    sequences: int
    vocabulary: Mapping[int, int] | None = None

    def steps(self, setting: Setting) -> int:
        """The iterations that a setting gets."""
        if self.vocabulary is not None and setting.inputs == "fixed_vocabulary":
            return self.vocabulary[setting.depth]
        return self.iterations[setting.depth]

    def experiment(self, setting: Setting) -> Experiment:
        """The setting as something that can be trained."""
        steps = self.steps(setting)
        every = steps // 10
        return Experiment(
            setting.task, setting.network, seeds=self.seeds, iterations=steps, evaluate_every=every
        )

    def describe(self, settings: Iterable[Setting]) -> str:
        """In a line, what was trained for these settings and how it was tested."""
        spent = sorted({(setting.depth, self.steps(setting)) for setting in settings})
        steps = sorted({f"{count:,}" for _, count in spent})
        if len(steps) > 1:
            steps = [f"{count:,} (depth {depth})" for depth, count in spent]
        words = f"{len(self.seeds)} networks per cell, {', '.join(steps)} iterations"
        return f"{words}, {self.sequences:,} test sequences"


QUICK = Effort(
    "quick",
    (0, 1, 2),
    {2: 2500, 4: 2000, 6: 1500, 8: 1000, 10: 750},
    2000,
    vocabulary={2: 1000, 4: 1000, 6: 1000, 8: 600, 10: 500},
)
"""Fifteen minutes for Figure 2 on two cores, less than an hour for all: networks have learnt to copy a label of
their context, no more. With a fixed vocabulary they have after fewer iterations."""
FULL = Effort("full", (0, 1, 2, 3, 4), dict.fromkeys(DEEP, 100_000), 10_000)
"""The paper's."""


@dataclass(frozen=True)
class DepthFigure:
    """Gaps against depth: a panel per encoding, a row without and with residual connections."""

    depths: Mapping[bool, tuple[int, ...]]
    inputs: Inputs = "gaussian_mixture"

    @property
    def rows(self) -> dict[str, dict[str, dict[str, Setting]]]:
        """Settings by row, panel and group of bars."""
        return {
            f"{'with' if residual else 'no'} residual": {
                title: {f"depth {depth}": self.setting(residual, word, depth) for depth in depths}
                for title, word in RELATIVE.items()
            }
            for residual, depths in self.depths.items()
        }

    def setting(self, residual: bool, positional: str, depth: int) -> Setting:
        """One of its settings."""
        return Setting(depth, residual, positional=positional, inputs=self.inputs)


@dataclass(frozen=True)
class DataFigure:
    """Gaps after training that asks for certain items: a panel per mask, a group per encoding."""

    answers: tuple[str, ...]
    inputs: Inputs = "gaussian_mixture"

    @property
    def rows(self) -> dict[str, dict[str, dict[str, Setting]]]:
        """Settings by row, panel and group of bars."""
        panels = {"no mask": Full(), "causal mask": Causal()}
        return {
            "": {
                title: {name: self.setting(mask, word) for name, word in ABSOLUTE.items()}
                for title, mask in panels.items()
            }
        }

    def setting(self, mask: Mask, positional: str) -> Setting:
        """One of its settings."""
        return Setting(mask=mask, positional=positional, answers=self.answers, inputs=self.inputs)


@dataclass(frozen=True)
class SinkFigure:
    """The sink metric by token: a panel per mask, a row without and with residual connections."""

    masks: Mapping[str, Mask]
    inputs: Inputs = "gaussian_mixture"

    @property
    def rows(self) -> dict[str, dict[str, Setting]]:
        """Settings by row and panel."""
        return {
            f"{'with' if residual else 'no'} residual": {
                title: self.setting(residual, mask) for title, mask in self.masks.items()
            }
            for residual in (False, True)
        }

    def setting(self, residual: bool, mask: Mask) -> Setting:
        """One of its settings."""
        return Setting(residual=residual, mask=mask, inputs=self.inputs)


@dataclass(frozen=True)
class MapFigure(SinkFigure):
    """Attention maps, averaged over sequences, of the first seed: a panel per layer."""


_SINKS = {
    "causal": {"causal mask": Causal()},
    "window": {f"window {width}": SlidingWindow(width) for width in WINDOWS},
    "prefix": {f"prefix {length}": Prefix(length) for length in PREFIXES},
}
Figure = DepthFigure | DataFigure | SinkFigure
_MIXTURE: dict[str, Figure] = {
    "fig4": DepthFigure({False: DEPTHS}),
    "fig5": DepthFigure({True: DEEP}),
    "fig3": DataFigure(("first", "last")),
    "fig6": DataFigure(("first",)),
    "fig7": DataFigure(("middle",)),
    "fig8": DataFigure(("last",)),
    "fig9": MapFigure(_SINKS["causal"]),
    "fig10": SinkFigure(_SINKS["causal"]),
    "fig11": SinkFigure(_SINKS["window"]),
    "fig12": SinkFigure(_SINKS["prefix"]),
}
_VOCABULARY = {
    f"fig{number}": replace(figure, inputs="fixed_vocabulary")
    for number, figure in zip((13, 14, 15, 16, 17, 18, 20, 21, 22, 23), _MIXTURE.values(), strict=True)
}
_ALL: dict[str, Figure] = {"fig2": DepthFigure({False: DEPTHS, True: DEPTHS})} | _MIXTURE | _VOCABULARY
FIGURES: dict[str, Figure] = {name: _ALL[name] for name in sorted(_ALL, key=lambda name: int(name[3:]))}
"""The figures by name; those from 13 on repeat the others with a fixed vocabulary."""
GROUPS = {"fig19": ("fig15", "fig16", "fig17", "fig18"), "fig24": ("fig21", "fig22", "fig23")}
"""Figures whose number is the caption of others."""


def settings_of(figure: Figure) -> Iterator[Setting]:
    """The settings that a figure shows, in its order."""
    for panels in figure.rows.values():
        for shown in panels.values():
            yield from [shown] if isinstance(shown, Setting) else shown.values()
