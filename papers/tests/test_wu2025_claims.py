"""Claims are judged right: they hold, fail or stay undecided as often as their level says."""

import math

import numpy as np
import pytest
import torch

from posbias.profiles.claims import Judged, judge
from posbias.profiles.evidence import LEAST
from posbias.theory.masks import Full
from posbias.training.loop import Trained
from posbias_papers.wu2025 import STUDIES, Effort, Setting
from posbias_papers.wu2025.functions import spared
from posbias_papers.wu2025.outcomes import PAIRS, Gaps, Outcome, Sinks
from posbias_papers.wu2025.table import table

# --- the middle --------------------------------------------------------------------------------------------


def three(first_middle: float, first_last: float, middle_last: float, *, seed: int = 0, noise=0.004) -> Gaps:
    """A cell whose three gaps have these means."""
    rng = np.random.default_rng(seed)
    drawn = {
        pair: level + noise * rng.normal(size=5)
        for pair, level in zip(PAIRS, (first_middle, first_last, middle_last), strict=True)
    }
    return Gaps(drawn, np.full(5, 0.6), np.full(5, 1.5), drawn)


def middle(cell: Gaps) -> str:
    """Whether a setting with such gaps is said to be spared."""
    (piece,) = spared(table({Setting(): outcome(Setting(), cell)}, [Setting()]))
    return piece.verdict()


@pytest.mark.parametrize(
    ("levels", "verdict"),
    [
        ((0.2, 0.1, -0.1), "fails"),
        ((0.2, 0.3, 0.1), "holds"),
        ((-0.2, -0.3, -0.1), "holds"),
        ((-0.2, 0.0, 0.2), "holds"),
        ((0.0, 0.0, 0.0), "holds"),
    ],
)
def test_a_cell_is_lost_in_the_middle_only_if_both_ends_are_ahead(levels, verdict):
    assert middle(three(*levels)) == verdict
    idle = three(*levels)
    assert middle(Gaps(idle.gaps, np.full(5, 0.05), idle.loss, idle.gaps)) == "undecided"


def test_a_middle_is_said_to_be_spared_or_lost_no_more_often_than_the_level():
    def share(kind: str, levels: tuple[float, float, float], runs: int = 300) -> float:
        found = [middle(three(*levels, seed=run, noise=0.02)) for run in range(runs)]
        return found.count(kind) / runs - 4 * math.sqrt(0.05 * 0.95 / runs)

    # both ends ahead by the least that counts: lost, by so little
    assert share("holds", (LEAST, 0.0, -LEAST)) < 0.05
    # one end surely ahead, the other not at all: spared
    assert share("fails", (0.3, 0.3, 0.0)) < 0.05


# --- figures -----------------------------------------------------------------------------------------------


def trained(setting: Setting, accuracy: float, steps: int) -> Trained:
    """Five networks whose in-context accuracy rises evenly to about `accuracy` in so many iterations."""
    end = accuracy + np.array([[-0.01], [-0.005], [0.0], [0.005], [0.01]])
    rising = end * np.linspace(0, 1, 11)
    curves = {
        "iteration": np.linspace(0, steps, 11),
        "in_context_accuracy": rising,
        **dict.fromkeys(PAIRS, 0.1 * rising),
    }
    experiment = Effort("", tuple(range(5)), {setting.depth: steps}, 10).experiment(setting)
    return Trained(experiment, {"query": torch.zeros(5, setting.depth, 1, 1)}, curves, {}, {})


def outcome(setting: Setting, cell: Gaps, accuracy: float = 0.6, steps: int = 100_000) -> Outcome:
    """What is known of a cell with these gaps, and learning curves up to `accuracy`."""
    tokens = 17
    sinks = Sinks(np.zeros((5, tokens)), np.zeros((5, tokens)), np.zeros(tokens), cell.learnt)
    attention = np.zeros((5, setting.depth, tokens, tokens))
    return Outcome(cell, sinks, attention, np.full((5, 8), accuracy), trained(setting, accuracy, steps), 40)


def verdicts(name: str, cells: dict[Setting, Gaps]) -> dict[str, str]:
    """The claims of a figure on cells with these gaps, trained as long as the paper's."""
    outcomes = {setting: outcome(setting, cell) for setting, cell in cells.items()}
    return {claim.sentence: claim.verdict for claim in STUDIES[name].judged(outcomes)}


def cells_of(name: str, levels) -> dict[Setting, Gaps]:
    settings = STUDIES[name].cells
    return {setting: three(*levels(setting), seed=number) for number, setting in enumerate(settings)}


def growing(setting: Setting) -> tuple[float, float, float]:
    """The bias to earlier items grows with every step of depth, less so with an encoding."""
    size = 0.1 * setting.depth / 2 - {"none": 0.0, "rope": 0.05, "decay": 0.35}[setting.positional]
    return 0.8 * size, size, 0.2 * size


MIDDLE = "Training without position bias leaves no network lost in the middle"
APART = f"{MIDDLE} (residual networks with RoPE from depth 6 on apart)"


def test_every_step_of_depth_is_judged():
    sentence = "No residual: every step of depth adds to the bias to earlier items, with every encoding"
    assert verdicts("fig4", cells_of("fig4", growing))[sentence] == "holds"

    def back(setting: Setting) -> tuple[float, float, float]:
        levels = growing(setting)
        less = 0.3 if setting.depth == 4 else 0.0
        return levels[0] - less, levels[1] - less, levels[2] - less

    found = verdicts("fig4", cells_of("fig4", back))
    assert found[sentence] == "fails"
    assert found["No residual: depth 6 favours earlier items more than depth 2"] == "holds"


def test_recent_items_are_judged_by_the_last_against_the_middle():
    sentence = "No residual: decay mask and RoPE raise the last item against the middle one"
    assert verdicts("fig4", cells_of("fig4", growing))[sentence] == "holds"
    same = cells_of("fig4", lambda setting: (0.1, 0.1, 0.02))
    assert verdicts("fig4", same)[sentence] == "fails"


def test_gaps_of_the_first_item_are_to_be_the_wider_ones():
    sentences = (
        "No residual: middle against last differs less than first against last",
        "No residual: middle against last differs less than first against middle",
        "No residual: with decay mask and RoPE too, middle against last differs less than first against either",
    )
    found = verdicts("fig4", cells_of("fig4", growing))
    assert {found[one] for one in sentences} == {"holds"}
    late = verdicts("fig4", cells_of("fig4", lambda s: (0.1, 0.2, 0.3)))
    assert {late[one] for one in sentences} == {"fails"}


@pytest.mark.parametrize(("name", "sentence"), [("fig4", MIDDLE), ("fig2", APART)])
def test_no_network_trained_without_bias_is_lost_in_the_middle_but_deep_rotary_ones(name, sentence):
    def deep(setting: Setting) -> tuple[float, float, float]:
        lost = setting.residual and setting.positional == "rope" and setting.depth >= 6
        return (0.2, 0.1, -0.1) if lost else growing(setting)

    assert verdicts(name, cells_of(name, deep))[sentence] == "holds"
    shallow = cells_of(name, lambda s: (0.2, 0.1, -0.1) if s.depth == 2 else growing(s))
    assert verdicts(name, shallow)[sentence] == "fails"


def test_residual_networks_have_a_bias_that_depends_on_encoding_and_depth():
    there = "Residual: position bias still emerges"
    depends = "Residual: what depth does to it depends on the encoding"

    def bent(setting: Setting) -> tuple[float, float, float]:
        level = 0.2 if setting.positional == "none" and setting.depth == 6 else 0.1
        return level, level, 0.0

    found = verdicts("fig5", cells_of("fig5", bent))
    assert (found[there], found[depends]) == ("holds", "holds")
    flat = {
        setting: three(0.0, 0.0, 0.0, seed=k, noise=0.001) for k, setting in enumerate(STUDIES["fig5"].cells)
    }
    found = verdicts("fig5", flat)
    assert (found[there], found[depends]) == ("fails", "fails")


def is_harder(name: str, outcomes: dict[Setting, Outcome]) -> Judged:
    """The claim that a fixed vocabulary is the harder task, of a figure that makes it."""
    (claim,) = (claim for claim in STUDIES[name].claims if "the harder task" in claim.sentence)
    return judge(claim, table(outcomes, STUDIES[name].cells))


@pytest.mark.parametrize(("accuracy", "verdict"), [(0.3, "holds"), (0.5, "fails")])
def test_the_harder_inputs_are_those_learnt_less_of_after_as_many_iterations(accuracy, verdict):
    """Training on the mixture goes on for longer, which is no reason to call it easier."""
    flat = three(0.0, 0.0, 0.0)
    both = {cell: outcome(cell, flat, accuracy, 1000) for cell in STUDIES["fig13"].cells}
    both |= {cell: outcome(cell, flat, 1.0, 2500) for cell in STUDIES["fig4"].cells}
    claim = is_harder("fig13", both)
    assert claim.verdict == verdict
    assert "after 1,000 iterations" in claim.evidence[0].where
    assert claim.evidence[0].estimate.value == pytest.approx(0.4 - accuracy)
    assert not any("harder" in claim.sentence for claim in STUDIES["fig4"].claims)


def test_a_fixed_vocabulary_alone_says_nothing_of_which_is_harder():
    alone = {cell: outcome(cell, three(0.0, 0.0, 0.0), 0.3) for cell in STUDIES["fig14"].cells}
    claim = is_harder("fig14", alone)
    assert claim.verdict == "undecided"
    assert "the Gaussian mixture was not trained along with it" in claim.why


ENCODED = {
    "fig3": (0.3, 0.05, -0.25),
    "fig6": (0.3, 0.3, 0.0),
    "fig7": (-0.3, 0.0, 0.3),
    "fig8": (0.0, -0.3, -0.3),
}


def biased(name: str, alone=(0.1, 0.15, 0.05), encoded=None) -> dict[str, str]:
    def levels(setting: Setting) -> tuple[float, float, float]:
        if setting.positional != "none":
            return encoded or ENCODED[name]
        return (0.0, 0.0, 0.0) if setting.mask == Full() else alone

    return verdicts(name, cells_of(name, levels))


@pytest.mark.parametrize("name", ["fig6", "fig7", "fig8"])
def test_only_training_on_both_ends_loses_the_middle(name):
    sentence = "No network is lost in the middle: that takes training on both ends"
    assert biased(name)[sentence] == "holds"
    assert biased(name, encoded=ENCODED["fig3"])[sentence] == "fails"
    assert sentence not in biased("fig3")


@pytest.mark.parametrize(("name", "item"), [("fig3", "last"), ("fig7", "middle"), ("fig8", "last")])
def test_a_mask_alone_does_not_learn_what_its_own_bias_is_not_about(name, item):
    sentence = f"The causal mask alone does not learn the bias to the {item} item"
    assert biased(name)[sentence] == "holds"
    assert biased(name, alone=ENCODED[name])[sentence] == "fails"


def test_a_mask_has_to_add_to_the_bias():
    sentence = "The causal mask alone favours the first item more than no mask does"
    assert biased("fig6")[sentence] == "holds"
    assert biased("fig6", alone=(0.0, 0.0, 0.0))[sentence] == "fails"
