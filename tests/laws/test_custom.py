"""What users bring to masks and encodings: computed as written down, kept by its values, run when asked for."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    alibi_slopes,
)
from posbias.core.errors import InvalidValueError
from posbias.core.spec import decode, encode, fingerprint

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


def plain(logits, allowed, tokens, depth=4, share=0.4):
    """The last row of the rollout by loops over layers, logits [head, query, key]."""
    row = np.eye(tokens)[-1]
    for layer in range(depth)[::-1]:
        each = np.where(allowed, logits / (1 + layer % 2), -np.inf)
        weights = np.exp(each - each.max(-1, keepdims=True))
        row = (1 - share) * row + share * row @ (weights / weights.sum(-1, keepdims=True)).mean(0)
    return row


@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 10**6), st.booleans())
@settings(max_examples=60)
def test_any_mask_and_any_bias_equal_plain_loops(tokens, heads, seed, written):
    rng = np.random.default_rng(seed)
    allowed = (rng.random((tokens, tokens)) < rng.choice([0.05, 0.5])) | np.eye(tokens, dtype=bool)
    bias = rng.normal(0, 3, (heads, tokens, tokens))
    bias[(rng.random(bias.shape) < 0.3) & ~np.eye(tokens, dtype=bool)] = -np.inf
    mask, logits = allowed, bias
    if written:
        mask, logits = lambda query, key: allowed[query, key], lambda query, key: bias[:, query, key]
    layer = {"heads": heads, "mask": CustomMask(mask), "positional": DenseLogits(logits)}
    architecture = Architecture(4, (Layer(**layer), Layer(**layer, temperature=2.0)), ConstantMixing(0.4))
    expected = plain(bias, allowed, tokens)
    np.testing.assert_allclose(
        posbias.influence(architecture, tokens).mass, expected, rtol=1e-12, atol=1e-300
    )


@given(st.integers(1, 40), st.integers(0, 10**6), st.booleans())
@settings(max_examples=60)
def test_any_function_of_distance_equals_plain_loops_under_any_mask(tokens, seed, per_head):
    rng = np.random.default_rng(seed)
    allowed = (rng.random((tokens, tokens)) < 0.2) | np.eye(tokens, dtype=bool)
    table = rng.normal(0, 3, (2 if per_head else 1, 2 * tokens))
    positional = DistanceFunction(lambda distance: (table if per_head else table[0])[..., distance + tokens])
    layer = {"heads": 2, "mask": CustomMask(allowed), "positional": positional}
    architecture = Architecture(4, (Layer(**layer), Layer(**layer, temperature=2.0)), ConstantMixing(0.4))
    place = np.arange(tokens)
    expected = plain(table[:, place[:, None] - place + tokens], allowed, tokens)
    np.testing.assert_allclose(
        posbias.influence(architecture, tokens).mass, expected, rtol=1e-12, atol=1e-300
    )


SLOPES = alibi_slopes(4)[:, None]
REPLICAS = {
    "window": ({"mask": CustomMask(lambda i, j: (j <= i) & (i - j < 9))}, {"mask": SlidingWindow(9)}),
    "window with sinks": (
        {"mask": CustomMask(lambda i, j: (j <= i) & ((i - j < 9) | (j < 2)))},
        {"mask": SlidingWindow(9, sinks=2)},
    ),
    "alibi by distance": (
        {"positional": DistanceFunction(lambda distance: -SLOPES * np.abs(distance))},
        {"positional": ALiBi()},
    ),
    "alibi by pair": (
        {"positional": DenseLogits(lambda i, j: -SLOPES[..., None] * abs(i - j))},
        {"positional": ALiBi()},
    ),
    "window as a bias": (
        {"positional": DenseLogits(lambda i, j: np.where(i - j < 9, 0.0, -np.inf))},
        {"mask": SlidingWindow(9)},
    ),
    "prefix": ({"mask": CustomMask(lambda i, j: (j <= i) | (j < 5) & (i < 5))}, {"mask": posbias.Prefix(5)}),
}


@pytest.mark.parametrize(("own", "member"), REPLICAS.values(), ids=REPLICAS)
@pytest.mark.parametrize("query", [0, 3, -1])
def test_what_replicates_a_member_equals_it(own, member, query):
    own, member = (Architecture(3, (Layer(4, **parts),), ConstantMixing(0.4)) for parts in (own, member))
    expected = posbias.influence(member, 300, query, method="stream").mass
    np.testing.assert_allclose(posbias.influence(own, 300, query).mass, expected, rtol=1e-12, atol=1e-290)


def test_a_function_of_pairs_sees_few_queries_at_a_time():
    most = 0

    def seen(query, key):
        nonlocal most
        most = max(most, np.broadcast(query, key).size)
        return key <= query

    posbias.influence(Architecture(1, (Layer(mask=CustomMask(seen)),)), 4096)
    assert most <= 2**18


def test_what_one_mask_lets_see_another_leads_on():
    """Neither mask alone takes token 0 beyond 5."""
    first, second = np.eye(12, dtype=bool), np.eye(12, dtype=bool)
    first[0, 5] = second[5, 9] = True
    layers = tuple(Layer(mask=CustomMask(mask)) for mask in (second, first))
    profile = posbias.influence(Architecture(2, layers, ConstantMixing(1.0)), 12, query=0)
    np.testing.assert_allclose(profile.mass[[0, 5, 9]], [0.5, 0.25, 0.25], rtol=1e-12)


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


def test_a_name_may_stand_for_an_array(folder):
    architecture = Architecture(1, (Layer(2, positional=DenseLogits("brought:table")),), ConstantMixing(1.0))
    np.testing.assert_allclose(posbias.influence(architecture, 9).mass, 1 / 9, rtol=1e-12)


def test_a_function_at_the_top_of_a_module_is_its_name(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    import brought  # type: ignore[import-not-found]

    assert CustomMask(brought.near) == CustomMask("brought:near")
    assert encode(CustomMask(brought.near))["rule"].startswith("brought:near#")


def test_another_version_of_a_module_is_another_specification(folder):
    before = encode(CustomMask("brought:near"))
    (folder / "brought.py").write_text(MODULE.replace("< 3", "< 4"))
    assert fingerprint(CustomMask("brought:near")) != fingerprint(decode(CustomMask, before))
    with pytest.raises(InvalidValueError, match="brought"):
        decode(CustomMask, before).allowed(5)


WRONG_MASKS = [
    CustomMask("nowhere:near"),
    CustomMask("brought:ner"),
    CustomMask("brought:fading"),
    CustomMask("brought:table"),
    CustomMask(lambda i, j: j - i),
    CustomMask(lambda i, j: j <= i and i - j < 5),
    CustomMask(lambda i, j: np.ones((2, 2, 2), dtype=bool)),
    CustomMask(lambda i, j: j < i),
    CustomMask(np.tri(4, dtype=bool)),
]
WRONG_ENCODINGS = [
    DistanceFunction(lambda d: np.zeros(3)),
    DistanceFunction(lambda d: np.zeros((3, len(d)))),
    DenseLogits(np.zeros((3, 9, 9))),
    DenseLogits(lambda i, j: np.zeros(4)),
    DenseLogits(lambda i, j: np.where(j < 0, 0.0, -np.inf)),
    DenseLogits(lambda i, j: j * np.nan),
    DenseLogits(np.zeros((4, 4))),
]


@pytest.mark.parametrize("part", [*WRONG_MASKS, *WRONG_ENCODINGS])
def test_what_does_not_fit_a_text_is_refused(folder, part):
    layer = Layer(2, **{"mask" if isinstance(part, CustomMask) else "positional": part})
    with pytest.raises(InvalidValueError):
        posbias.influence(Architecture(1, (layer,)), 9)


@pytest.mark.parametrize(
    ("cls", "given_"),
    [
        (CustomMask, "near"),
        (CustomMask, [[1, 0], [1, 1]]),
        (DenseLogits, [[0.0, "1"], [0.0, 0.0]]),
        (DenseLogits, [[0.0], [0.0, 0.0]]),
        (DenseLogits, np.array([[np.nan]])),
        (DenseLogits, np.zeros((2, 3))),
        (DistanceFunction, [0.0]),
    ],
)
def test_what_is_no_array_nor_function_is_refused(cls, given_):
    with pytest.raises(InvalidValueError):
        cls(given_)


def test_a_config_json_names_no_code(folder):
    import json

    from posbias.core.files import read_mapping

    for name in ("config.json", "mine.json"):
        (folder / name).write_text(json.dumps(read_mapping(folder / "own.toml")))
    assert posbias.load_architecture(folder / "mine.json").depth == 2
    with pytest.raises(InvalidValueError, match="brought:near"):
        posbias.load_architecture(folder)
    assert "brought" not in sys.modules
