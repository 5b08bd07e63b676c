"""A user's own mask, encoding, content or schedule is a member: computed, saved and loaded like ours."""

import math
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import pytest
from architectures import LONGEST, SHORTEST, positionals
from hypothesis import given
from hypothesis import strategies as st

import posbias
from posbias.core.errors import InvalidValueError
from posbias.core.spec import decode, encode, tag, value
from posbias.theory.rollout.kernel import layer_kernel, push


@value
class Dilated:
    """Every second earlier token, and the token itself."""

    dilation: int = 2
    kind: Literal["test_dilated"] = tag(default="test_dilated")

    def allowed(self, tokens):
        distance = np.subtract.outer(np.arange(tokens), np.arange(tokens))
        return (distance >= 0) & (distance % self.dilation == 0)

    def reach(self, query, tokens):
        return query

    def farthest(self, tokens):
        return tokens - 1


@value
class Logarithmic:
    """−r·ln(1 + |d|)."""

    rate: float
    kind: Literal["test_logarithmic"] = tag(default="test_logarithmic")
    exact: ClassVar[bool] = True

    def slopes_of(self, heads, groups=None):
        return None

    def logits_at(self, distance, heads, groups=None):
        return np.repeat(-self.rate * np.log1p(np.abs(distance))[None], heads, axis=0)


@value
class SelfLoving:
    """A diagonal of one."""

    kind: Literal["test_self_loving"] = tag(default="test_self_loving")

    def diagonal_of(self, heads, groups=None):
        return np.ones(heads)

    def first_column_of(self, heads, groups=None):
        return np.zeros(heads)


@value
class Halving:
    """λ_t = 2^−(t + 1)."""

    kind: Literal["test_halving"] = tag(default="test_halving")
    assumed: ClassVar[str] = ""

    def values(self, depth):
        return 0.5 ** np.arange(1.0, depth + 1)


@value
class Useless:
    """No method that anything asks for."""

    kind: Literal["test_useless"] = tag(default="test_useless")


OWN = {
    "mask": Dilated(),
    "positional": Logarithmic(0.7),
    "content": SelfLoving(),
}


def dense(architecture, tokens):
    """The last row of the product of dense kernels."""
    start = np.zeros(tokens)
    start[-1] = 1.0
    kernels = [layer_kernel(layer, tokens) for layer in architecture.stack]
    return push(start, kernels[::-1], architecture.coefficients[::-1])


@pytest.mark.parametrize("names", [*([name] for name in OWN), [*OWN]], ids="+".join)
@pytest.mark.parametrize("tokens", [1, 2, 33])
def test_a_layer_with_parts_of_ones_own_is_exact(names, tokens):
    layer = posbias.Layer(heads=2, **{name: OWN[name] for name in names})
    architecture = posbias.Architecture(3, (layer,), Halving())
    profile = posbias.predict(architecture, tokens)
    np.testing.assert_allclose(profile.mass, dense(architecture, tokens), rtol=1e-12)
    assert math.isclose(profile.mass.sum(), 1.0, rel_tol=1e-12)


@value
class Steeper(Logarithmic):
    """A slope that goes by the length of the text."""

    kind: Literal["test_steeper"] = tag(default="test_steeper")

    def at(self, tokens):
        return Logarithmic(self.rate * math.log(tokens))


@pytest.mark.parametrize("tokens", [2, 33])
def test_what_goes_by_the_length_of_a_text_is_that_of_the_text(tokens):
    of_length = posbias.Architecture(3, (posbias.Layer(2, positional=Steeper(0.7)),), Halving())
    fixed = posbias.Layer(2, positional=Logarithmic(0.7 * math.log(tokens)))
    profile = posbias.predict(of_length, tokens)
    np.testing.assert_array_equal(
        profile.mass, posbias.predict(replace(of_length, layers=(fixed,)), tokens).mass
    )
    np.testing.assert_allclose(profile.mass, dense(of_length, tokens), rtol=1e-12)


@given(encoding=positionals(2), tokens=st.integers(SHORTEST, LONGEST))
def test_every_encoding_says_what_it_is_in_a_text(encoding, tokens):
    """Asked for the same length again it is the same; a layer of it has the logits of a layer with it."""
    layer = posbias.Layer(2, positional=encoding)
    here = layer.at(tokens)
    assert here.at(tokens) == here
    np.testing.assert_array_equal(layer.logits(tokens), here.logits(tokens))


def test_it_is_saved_and_loaded():
    architecture = posbias.Architecture(2, (posbias.Layer(**OWN),), Halving())
    written = encode(architecture)
    assert written["layers"][0]["mask"] == {"dilation": 2, "kind": "test_dilated"}
    assert decode(posbias.Architecture, written) == architecture


def test_what_lacks_a_method_is_refused():
    for name in OWN:
        with pytest.raises(InvalidValueError, match=name):
            posbias.Layer(**{name: Useless()})
        with pytest.raises(InvalidValueError, match=f"{name}: kind 'test_useless' given, one of"):
            decode(posbias.Layer, {name: {"kind": "test_useless"}})


def test_the_kind_of_a_member_stays_its_own():
    @value
    class Backwards:
        kind: Literal["causal"] = tag(default="causal")
        allowed, reach, farthest = Dilated.allowed, Dilated.reach, Dilated.farthest

    with pytest.raises(InvalidValueError, match="mask"):
        posbias.Layer(mask=Backwards())
    assert decode(posbias.Layer, {"mask": {"kind": "causal"}}).mask == posbias.masks.Causal()


def test_its_matrix_has_to_fit_the_memory():
    architecture = posbias.Architecture(2, (posbias.Layer(mask=Dilated()),))
    with pytest.raises(InvalidValueError, match="tokens: 10000000 given"):
        posbias.predict(architecture, 10_000_000)


def test_an_engine_that_does_not_know_it_is_refused():
    with pytest.raises(InvalidValueError, match="stream needed for NoPE under Dilated"):
        posbias.predict(posbias.Architecture(2, (posbias.Layer(mask=Dilated()),)), 8, method="sweep")
