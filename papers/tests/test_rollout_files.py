"""Figures of the residual-aware paper and of its code, from the rollout files its authors publish.

The files are not part of this project; these tests run where a checkout lies next to this one, and skip elsewhere.
"""

import numpy as np
import pytest
from project import ROLLOUT_FILES, needs_rollout_files

from posbias.theory.configs import load_architecture, read_architecture
from posbias.theory.content import ConstantDiagonal
from posbias.theory.mixing import ConstantMixing, PerLayer
from posbias.theory.rollout.dispatch import influence
from posbias.theory.rollout.kernel import dense_influence

pytestmark = needs_rollout_files


@pytest.mark.parametrize(
    ("name", "last_tenth"),
    [("bloom-7b1-no-content", 0.231), ("mpt-7b-no-content", 0.165), ("mpt-7b-content", 0.384)],
)
def test_mass_of_the_last_tenth(name, last_tenth):
    mass = influence(load_architecture(ROLLOUT_FILES / f"{name}.yaml"), 256).mass
    assert mass[-26:].sum() == pytest.approx(last_tenth, abs=5e-4)


def test_bloom_has_its_minimum_at_61_and_attention_only_collapses():
    assert influence(load_architecture(ROLLOUT_FILES / "bloom-7b1-no-content.yaml"), 256).mass.argmin() == 61
    collapsed = influence(load_architecture(ROLLOUT_FILES / "mpt-7b-no-residual.yaml"), 256)
    assert collapsed.mass[0] > 0.99
    assert collapsed.summary.verdict == "primacy"


def test_fields_mean_what_they_say():
    read = read_architecture(ROLLOUT_FILES / "mpt-7b-content.yaml")
    architecture = read.architecture
    assert read.tokens == 256
    assert architecture.depth == 32
    assert isinstance(architecture.mixing, PerLayer)
    assert architecture.coefficients[0] == pytest.approx(0.5442152740955353)
    assert isinstance(architecture.layers[0].content, ConstantDiagonal)
    assert architecture.layers[0].content.diagonal[0] == pytest.approx(115.842529296875)
    assert architecture.layers[1].content.diagonal[0] == pytest.approx(-0.4429011344909668)
    assert architecture.assumptions == ()
    example = load_architecture(ROLLOUT_FILES / "example.yaml")
    assert example.mixing == ConstantMixing(0.2)
    assert len(example.layers) == 1


def test_content_of_every_layer_is_in_its_place():
    """A reversed order of layers or heads would move this profile by up to 9e-3; it must match to 1e-12."""
    architecture = load_architecture(ROLLOUT_FILES / "mpt-7b-content.yaml")
    np.testing.assert_allclose(
        influence(architecture, 128).mass, dense_influence(architecture, 128), rtol=1e-12
    )
