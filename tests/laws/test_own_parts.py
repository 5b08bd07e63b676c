"""Masks, encodings, content and schedules of one's own: computed, kept by their values, run when asked for."""

import sys
from typing import ClassVar, Literal

import numpy as np
import pytest
from dense import dense_influence, last_row
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

import posbias
from posbias import (
    ALiBi,
    Architecture,
    ConstantMixing,
    CustomMask,
    DenseLogits,
    DistanceFunction,
    Layer,
    SlidingWindow,
)
from posbias.core.errors import InvalidValueError
from posbias.core.spec import decode, encode, fingerprint, tag, value
from posbias.theory.graph import reachable

MODULE = """
import numpy as np
print("imported")
def near(query, key):
    return (key <= query) & (query - key < 3)
def fading(distance):
    return -0.3 * np.abs(distance)
table = np.zeros((2, 9, 9))
"""
FILE = """
depth = 2
[[layers]]
heads = 2
mask = {kind = "custom", rule = "brought:near"}
positional = {kind = "function", function = "brought:fading"}
[mixing]
kind = "constant"
value = 0.4
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder one works in, with a module and a file that names it."""
    (tmp_path / "brought.py").write_text(MODULE)
    (tmp_path / "own.toml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("brought", None)


def plain(logits, allowed):
    """The last row of the rollout of four layers by dense products, logits [head, query, key]."""
    weights = [np.exp(np.where(allowed, logits / temperature, -np.inf)) for temperature in (1, 2)]
    kernels = [(one / one.sum(-1, keepdims=True)).mean(0) for one in weights]
    return last_row(kernels * 2, [0.4] * 4)


@given(
    st.integers(1, 40),
    st.integers(1, 4),
    st.integers(0, 10**6),
    st.sampled_from(["arrays", "rules", "distances"]),
)
@examples(60)
def test_any_mask_bias_and_function_of_distance_equal_plain_loops(tokens, heads, seed, kind):
    rng, place = np.random.default_rng(seed), np.arange(tokens)
    allowed = (rng.random((tokens, tokens)) < rng.choice([0.05, 0.5])) | np.eye(tokens, dtype=bool)
    bias = rng.normal(0, 3, (heads, tokens, tokens))
    bias[(rng.random(bias.shape) < 0.3) & ~np.eye(tokens, dtype=bool)] = -np.inf
    mask, positional = CustomMask(allowed), DenseLogits(bias)
    if kind == "rules":
        mask = CustomMask(lambda query, key: allowed[query, key])
        positional = DenseLogits(lambda query, key: bias[:, query, key])
    if kind == "distances":
        table = rng.normal(0, 3, (heads, 2 * tokens))
        by_head = table[0] if heads == 1 else table
        positional = DistanceFunction(lambda distance: by_head[..., distance + tokens])
        bias = table[:, place[:, None] - place + tokens]
    layers = tuple(Layer(heads, mask, positional, temperature=one) for one in (1.0, 2.0))
    found = posbias.influence(Architecture(4, layers, ConstantMixing(0.4)), tokens).mass
    np.testing.assert_allclose(found, plain(bias, allowed), rtol=1e-12, atol=1e-300)


def test_a_function_of_pairs_sees_few_queries_at_a_time():
    most = 0

    def seen(query, key):
        nonlocal most
        most = max(most, np.broadcast(query, key).size)
        return key <= query

    posbias.influence(Architecture(1, (Layer(mask=CustomMask(seen)),)), 4096)
    assert 4096 <= most <= 2**18


def test_arrays_are_equal_and_kept_by_their_values():
    tri = np.tri(5, dtype=bool)
    assert CustomMask(tri) == CustomMask(tri.tolist())
    assert fingerprint(CustomMask(tri)) != fingerprint(CustomMask(tri | np.eye(5, k=1, dtype=bool)))
    bias = DenseLogits(np.where(tri, 0.5, -np.inf))
    assert decode(DenseLogits, encode(bias)) == bias
    assert len({bias, DenseLogits(np.where(tri, 0.5, -np.inf))}) == 1
    tri[0, 0] = False
    assert CustomMask(np.tri(5, dtype=bool)) != CustomMask(tri)


def test_a_lambda_runs_and_is_not_saved():
    layer = Layer(mask=CustomMask(lambda i, j: j <= i), positional=DistanceFunction(lambda d: -d))
    assert posbias.influence(Architecture(1, (layer,)), 8).mass.sum() == pytest.approx(1)
    for act in (encode, fingerprint):
        with pytest.raises(InvalidValueError):
            act(layer)


def test_a_name_in_a_file_is_imported_when_it_is_needed(folder, capsys):
    architecture = posbias.load_architecture(folder / "own.toml")
    written = encode(architecture)
    assert decode(Architecture, written) == architecture
    assert hash(architecture.layers[0]) == hash(decode(Architecture, written).layers[0])
    assert capsys.readouterr().out == ""
    profile = posbias.predict(architecture, 30)
    assert capsys.readouterr().out == "imported\n"
    layer = Layer(2, SlidingWindow(3), ALiBi([0.3]))
    expected = posbias.predict(Architecture(2, (layer,), ConstantMixing(0.4)), 30)
    np.testing.assert_allclose(profile.mass, expected.mass, rtol=1e-12)
    assert str(folder) not in sys.path


def test_a_name_stands_for_an_array_too_and_a_function_at_the_top_of_a_module_is_its_name(
    folder, monkeypatch
):
    architecture = Architecture(1, (Layer(2, positional=DenseLogits("brought:table")),), ConstantMixing(1.0))
    np.testing.assert_allclose(posbias.influence(architecture, 9).mass, 1 / 9, rtol=1e-12)
    monkeypatch.syspath_prepend(str(folder))
    import brought  # type: ignore[import-not-found]

    before = encode(CustomMask(brought.near))
    assert CustomMask(brought.near) == CustomMask("brought:near")
    # another version of the module is another specification
    (folder / "brought.py").write_text(MODULE.replace("< 3", "< 4"))
    assert fingerprint(CustomMask("brought:near")) != fingerprint(decode(CustomMask, before))
    with pytest.raises(InvalidValueError, match="brought"):
        decode(CustomMask, before).allowed(5)


WRONG = [
    CustomMask("nowhere:near"),
    CustomMask("brought:ner"),
    CustomMask("brought:fading"),
    CustomMask("brought:table"),
    CustomMask(lambda i, j: j - i),
    CustomMask(lambda i, j: j <= i and i - j < 5),
    CustomMask(lambda i, j: np.ones((2, 2, 2), dtype=bool)),
    CustomMask(lambda i, j: j < i),
    CustomMask(np.tri(4, dtype=bool)),
    DistanceFunction(lambda d: np.zeros(3)),
    DistanceFunction(lambda d: np.zeros((3, len(d)))),
    DenseLogits(np.zeros((3, 9, 9))),
    DenseLogits(lambda i, j: np.zeros(4)),
    DenseLogits(lambda i, j: np.where(j < 0, 0.0, -np.inf)),
    DenseLogits(lambda i, j: j * np.nan),
    DenseLogits(np.zeros((4, 4))),
]


def test_what_does_not_fit_a_text_and_what_is_no_array_nor_function_is_refused(folder):
    for part in WRONG:
        layer = Layer(2, **{"mask" if isinstance(part, CustomMask) else "positional": part})
        with pytest.raises(InvalidValueError):
            posbias.influence(Architecture(1, (layer,)), 9)
    for cls, wrong in (
        (CustomMask, "near"),
        (CustomMask, [[1, 0], [1, 1]]),
        (DenseLogits, [[0.0, "1"], [0.0, 0.0]]),
        (DenseLogits, [[0.0], [0.0, 0.0]]),
        (DenseLogits, np.array([[np.nan]])),
        (DenseLogits, np.zeros((2, 3))),
        (DistanceFunction, [0.0]),
    ):
        with pytest.raises(InvalidValueError):
            cls(wrong)


def test_a_config_json_names_no_code(folder):
    import json

    from posbias.core.files import read_mapping

    for name in ("config.json", "mine.json"):
        (folder / name).write_text(json.dumps(read_mapping(folder / "own.toml")))
    assert posbias.load_architecture(folder / "mine.json").depth == 2
    with pytest.raises(InvalidValueError, match="brought:near"):
        posbias.load_architecture(folder)
    assert "brought" not in sys.modules


# --- a class of one's own --------------------------------------------------------------------------------


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


OWN = {"mask": Dilated(), "positional": Logarithmic(0.7), "content": SelfLoving()}


@pytest.mark.parametrize("names", [*([name] for name in OWN), [*OWN]], ids="+".join)
@pytest.mark.parametrize("tokens", [1, 2, 33])
def test_a_layer_with_parts_of_ones_own_is_exact(names, tokens):
    layer = posbias.Layer(heads=2, **{name: OWN[name] for name in names})
    architecture = posbias.Architecture(3, (layer,), Halving())
    profile = posbias.predict(architecture, tokens)
    np.testing.assert_allclose(profile.mass, dense_influence(architecture, tokens), rtol=1e-12)
    np.testing.assert_array_equal(reachable(architecture, tokens, 1), layer.mask.allowed(tokens))


def test_a_class_of_ones_own_is_saved_and_loaded_and_no_member_is_replaced_by_it():
    architecture = posbias.Architecture(2, (posbias.Layer(**OWN),), Halving())
    assert decode(posbias.Architecture, encode(architecture)) == architecture

    @value
    class Backwards:
        kind: Literal["causal"] = tag(default="causal")
        allowed, reach, farthest = Dilated.allowed, Dilated.reach, Dilated.farthest

    refused("mask", lambda: posbias.Layer(mask=Backwards()))
    assert decode(posbias.Layer, {"mask": {"kind": "causal"}}).mask == posbias.masks.Causal()


def test_what_lacks_a_method_a_matrix_beyond_the_memory_and_another_engine_are_refused():
    for name in OWN:
        refused(name, lambda name=name: posbias.Layer(**{name: Useless()}))
        refused(name, lambda name=name: decode(posbias.Layer, {name: {"kind": "test_useless"}}))
    architecture = posbias.Architecture(2, (posbias.Layer(mask=Dilated()),))
    refused("tokens", lambda: posbias.predict(architecture, 10_000_000))
    refused("method", lambda: posbias.predict(architecture, 8, method="sweep"))
