"""The levels of Herasimchyk et al. 2026 against plain dense rollouts, and Shannon similarity (Eq. 9) against
counting by hand, in both readings.
"""

import math

import numpy as np
import pytest
import torch
import transformers
import yaml
from dense import last_row
from hypothesis import given
from hypothesis import strategies as st
from measured import CONSTANT, DELTA, DEPTH, HEAD_SIZE, HEADS, SLOPES, TOKENS, measurement
from project import ROLLOUT_FILES, needs_rollout_files
from refused import refused

from posbias.core.errors import InputFileError
from posbias.theory.configs import PRESETS, load_architecture, read_architecture
from posbias.theory.mixing import ConstantMixing
from posbias.theory.positional import alibi_slopes
from posbias.theory.rollout.dispatch import influence
from posbias_papers.herasimchyk2026.configs import BINS, HUB, TABLE1
from posbias_papers.herasimchyk2026.levels import FITTED, config_curves, curves_of, mean_content, slopes_of
from posbias_papers.herasimchyk2026.quantities import fit, shannon_similarity, similarity

LAYER = 1 + np.arange(DEPTH)[:, None]


def dense(logits, mixing, window=TOKENS):
    """The last row of R_T ⋯ R_1, by the definition; logits [layer, head, query, key]."""
    distance = np.subtract.outer(np.arange(logits.shape[-1]), np.arange(logits.shape[-1]))
    weights = np.where((distance >= 0) & (distance < window), np.exp(logits), 0.0)
    return last_row((weights / weights.sum(axis=-1, keepdims=True)).mean(axis=1), mixing)


def by_distance(table):
    distance = np.subtract.outer(np.arange(TOKENS), np.arange(TOKENS))
    return table[..., np.maximum(distance, 0)]


def alibi(slopes):
    return np.tile(by_distance(-slopes[:, None] * np.arange(TOKENS)), (DEPTH, 1, 1, 1))


# --- what is read off a measurement ------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_slopes_are_the_models_own_whatever_is_added_to_a_row(shift):
    found = slopes_of(measurement(shift=shift))
    np.testing.assert_allclose(found, np.tile(SLOPES, (DEPTH, 1)), rtol=1e-12)


def test_logits_that_are_no_line_have_no_slopes():
    assert slopes_of(measurement(additive=False)) is None
    none = measurement()
    for place in ("diagonal", "first_column"):
        none[f"logits_{place}"] = none[f"content_{place}"]
    assert slopes_of(none) is None


def test_corrected_content_is_the_constant_and_the_offset_without_token_0():
    found = mean_content(measurement())
    np.testing.assert_allclose(found.constant, np.tile(CONSTANT, (DEPTH, 1)), rtol=1e-12)
    np.testing.assert_allclose(found.offset, DELTA * LAYER, rtol=1e-12)


def test_published_content_counts_token_0_and_is_not_scaled():
    found, own = mean_content(measurement(), "published"), (DELTA * LAYER)[..., None, None] * np.eye(TOKENS)
    entries = np.tile(CONSTANT[:, None, None], (DEPTH, 1, TOKENS, TOKENS)) + own
    entries[..., 0] += 2.0
    below = entries[..., np.tri(TOKENS, k=-1, dtype=bool)].mean(axis=-1)
    own = entries[..., np.eye(TOKENS, dtype=bool)].mean(axis=-1)
    np.testing.assert_allclose(found.constant, np.sqrt(HEAD_SIZE) * below, rtol=1e-12)
    np.testing.assert_allclose(found.offset, np.sqrt(HEAD_SIZE) * (own - below), rtol=1e-12)


# --- levels against dense rollouts -------------------------------------------------------------------------


@pytest.mark.parametrize("window", [None, 9])
@pytest.mark.parametrize("additive", [True, False])
def test_levels_are_the_dense_rollouts(additive, window):
    given = measurement(additive=additive, window=window)
    curves = curves_of(given, "noise")
    assert curves.additive == additive
    assert list(curves.levels) == (["a", "b", "c"] if additive else ["a", "b", "c", "d"])
    cosine = np.tile(by_distance(SLOPES[:, None] * np.cos(np.arange(TOKENS) / 7.0)), (DEPTH, 1, 1, 1))
    if window is None and not additive:
        # the longest distance occurs in the first column only: it takes the value of its neighbour
        cosine[..., -1, 0] = cosine[..., -1, 1]
    positional = alibi(SLOPES) if additive else cosine
    content = (DELTA * LAYER)[..., None, None] * np.eye(TOKENS)
    lam = given["mixing"].values.mean(axis=0)
    width = TOKENS if window is None else window
    for letter, logits, mixing in (
        ("a", positional, np.ones(DEPTH)),
        ("b", positional, lam),
        ("c", positional + content, lam),
    ):
        expected = dense(logits, mixing, width)
        np.testing.assert_allclose(curves.levels[letter].mass, expected, rtol=1e-9, atol=1e-15)
    if not additive:
        fitted = FITTED.predict(given)
        np.testing.assert_allclose(curves.levels["d"].mass, fitted / fitted.sum(), rtol=1e-9)


def test_the_published_reading_takes_formula_slopes_unscaled_content_and_the_first_corpus_mixing():
    first, other = measurement(seed=1), measurement(text="other", seed=2)
    curves = curves_of(other, "other", "published", first)
    slopes = 2.0 ** (-8.0 * np.arange(1, HEADS + 1) / HEADS)
    shared, own = (one["mixing_token"].values.mean(axis=0) for one in (first, other))
    assert np.abs(shared - own).max() > 1e-4
    content = mean_content(other, "published").offset[..., None, None] * np.eye(TOKENS)
    np.testing.assert_allclose(curves.levels["b"].mass, dense(alibi(slopes), shared), rtol=1e-9)
    np.testing.assert_allclose(curves.levels["c"].mass, dense(alibi(slopes) + content, own), rtol=1e-9)
    np.testing.assert_allclose(curves.levels["a"].mass, dense(alibi(slopes), np.ones(DEPTH)), rtol=1e-9)


# --- the authors' files ------------------------------------------------------------------------------------


def rollout_file(path, *, depth=3, heads=112, tokens=32, diagonal=0.0, lam=0.3):
    path.parent.mkdir(parents=True, exist_ok=True)
    slopes = [2.0 ** (-8.0 * h / heads) for h in range(1, heads + 1)]
    data = {
        "sequence_length": tokens,
        "num_layers": depth,
        "attention_config": {"num_heads": heads, "alibi_slopes": [slopes]},
        "mask_config": {"mask_type": "causal"},
        "content_config": {"diagonal_scores": [[diagonal]], "base_scores": [[0.0]]},
        "lambda_schedule_config": {"schedule_type": "constant", "lambda_const": lam},
        "save_dir": "x",
    }
    path.write_text(yaml.safe_dump(data))


@pytest.fixture
def published(tmp_path):
    """The layout of the authors' repository: BLOOM-176B with one content for all, on two corpora; mpt-7b bare."""
    rollout_file(tmp_path / "no_content" / "bloom.yaml")
    rollout_file(tmp_path / "no_content" / "bloom-noresidual.yaml", lam=1.0)
    rollout_file(tmp_path / "no_content" / "mpt-7b.yaml", heads=32)
    rollout_file(tmp_path / "all_content" / "fineweb-edu" / "bloom.yaml", diagonal=8.0)
    rollout_file(tmp_path / "all_content" / "wikipedia" / "bloom.yaml", diagonal=-4.0, lam=0.4)
    rollout_file(tmp_path / "no_content_2048" / "bloom.yaml", tokens=64)
    return tmp_path


def file_dense(slopes, diagonal, lam, tokens=32, depth=3):
    distance = np.subtract.outer(np.arange(tokens), np.arange(tokens))
    logits = -slopes[:, None, None] * np.maximum(distance, 0) + diagonal[:, None, None] * np.eye(tokens)
    return dense(np.tile(logits, (depth, 1, 1, 1)), np.full(depth, lam))


def test_published_files_are_read_as_the_authors_code_reads_them(published):
    curves = {(one.model, one.corpus): one.levels for one in config_curves(published, "published", 32)}
    bloom = {("bloom-176b", text) for text in ("FineWeb-Edu", "Wikipedia")}
    assert set(curves) == bloom | {("mpt-7b", "FineWeb-Edu")}
    slopes = 2.0 ** (-8.0 * np.arange(1, 113) / 112)
    bare, only_first = np.zeros(112), np.zeros(112)
    only_first[0] = 8.0
    levels = curves["bloom-176b", "FineWeb-Edu"]
    np.testing.assert_allclose(levels["a"].mass, file_dense(slopes, bare, 1.0), rtol=1e-9)
    np.testing.assert_allclose(levels["b"].mass, file_dense(slopes, bare, 0.3), rtol=1e-9)
    np.testing.assert_allclose(levels["c"].mass, file_dense(slopes, only_first, 0.3), rtol=1e-9)
    only_first[0] = -4.0
    other = curves["bloom-176b", "Wikipedia"]
    np.testing.assert_allclose(other["c"].mass, file_dense(slopes, only_first, 0.4), rtol=1e-9)
    # column (b) has one λ for every corpus
    np.testing.assert_array_equal(other["b"].mass, levels["b"].mass)
    assert list(curves["mpt-7b", "FineWeb-Edu"]) == ["a", "b"]


def test_corrected_files_have_the_models_slopes_all_heads_and_softmax_units(published):
    curves = {(one.model, one.corpus): one.levels for one in config_curves(published, "corrected", 32)}
    levels = curves["bloom-176b", "FineWeb-Edu"]
    slopes = alibi_slopes(112)
    every = np.full(112, 8.0 / np.sqrt(128))
    np.testing.assert_allclose(levels["b"].mass, file_dense(slopes, np.zeros(112), 0.3), rtol=1e-9)
    np.testing.assert_allclose(levels["c"].mass, file_dense(slopes, every, 0.3), rtol=1e-9)


def test_a_folder_without_fitting_files_is_refused(published, tmp_path):
    for folder, tokens in ((published, 48), (tmp_path / "nowhere", 32)):
        with pytest.raises(InputFileError, match=r"^configs: "):
            config_curves(folder, tokens=tokens)


@needs_rollout_files
def test_the_real_files_give_the_known_masses_of_the_last_tenth():
    found = {
        (reading, one.model): {letter: level.mass[-26:].sum() for letter, level in one.levels.items()}
        for reading in ("published", "corrected")
        for one in config_curves(ROLLOUT_FILES, reading)
    }
    assert found["published", "mpt-7b"]["b"] == pytest.approx(0.165, abs=5e-4)
    assert found["published", "mpt-7b"]["c"] == pytest.approx(0.384, abs=5e-4)
    assert found["corrected", "mpt-7b"]["c"] == pytest.approx(0.181, abs=5e-4)
    assert found["published", "bloom-7b"]["b"] == pytest.approx(0.231, abs=5e-4)


@needs_rollout_files
def test_the_real_files_have_a_trough_where_the_paper_draws_it_and_collapse_without_the_residual():
    bloom, bare = (
        influence(load_architecture(ROLLOUT_FILES / f"{name}.yaml"), 256)
        for name in ("bloom-7b1-no-content", "mpt-7b-no-residual")
    )
    assert bloom.mass.argmin() == 61
    assert (bare.summary.verdict, bare.mass[0] > 0.99) == ("primacy", True)


@needs_rollout_files
def test_fields_of_the_real_files_mean_what_they_say():
    read = read_architecture(ROLLOUT_FILES / "mpt-7b-content.yaml")
    architecture = read.architecture
    assert (read.tokens, architecture.depth, architecture.assumptions) == (256, 32, ())
    assert architecture.coefficients[0] == pytest.approx(0.5442152740955353)
    first, second = (layer.content.diagonal[0] for layer in architecture.layers[:2])
    assert (first, second) == (pytest.approx(115.842529296875), pytest.approx(-0.4429011344909668))
    example = load_architecture(ROLLOUT_FILES / "example.yaml")
    assert (example.mixing, len(example.layers)) == (ConstantMixing(0.2), 1)


# --- printed numbers ---------------------------------------------------------------------------------------


WORDS = {"falcon": 65_024, "mpt": 50_432, "bloom": 250_880}
"""Those of the stored embeddings."""


@pytest.mark.parametrize("model", TABLE1)
def test_parameters_are_those_of_the_model_that_transformers_builds(model):
    hub, known, family = HUB[model], PRESETS[HUB[model].preset], model.partition("-")[0]
    sizes = {"num_attention_heads": known.heads, "num_hidden_layers": known.depth}
    sizes |= {"hidden_size": known.heads * hub.head_size, "vocab_size": WORDS[family]}
    if family == "falcon":
        sizes |= {"alibi": True, "bias": True, "multi_query": False, "parallel_attn": False}
    with torch.device("meta"):  # sizes without weights
        config = transformers.AutoConfig.for_model(family, **sizes)
        built = transformers.AutoModelForCausalLM.from_config(config)
    assert hub.parameters == sum(one.numel() for one in built.parameters())
    assert known.depth == TABLE1[model][1]


# --- similarity of content ---------------------------------------------------------------------------------


def naive(entries, bins, low, high):
    """Bin by bin with plain floats; a bin holds its lower edge, the last one both."""
    counts = [0] * bins
    for entry in entries:
        if low <= entry <= high:
            counts[min(bins - 1, int((entry - low) / (high - low) * bins))] += 1
    total = sum(counts)
    entropy = -sum(count / total * math.log(count / total) for count in counts if count)
    return 1 - entropy / math.log(bins)


@given(st.lists(st.integers(-40, 40), min_size=1, max_size=30), st.integers(2, 9))
def test_similarity_is_one_minus_normalised_entropy(entries, bins):
    # a span of bins · 16 around integers: no entry is within rounding of an edge it is not on
    low, high = -64.0, -64.0 + 16 * bins
    inside = [entry for entry in entries if low <= entry <= high]
    found = shannon_similarity(np.array(entries, float), bins, (low, high))
    expected = naive(inside, bins, low, high) if inside else math.nan
    assert found == pytest.approx(expected, abs=1e-14, nan_ok=True)
    assert shannon_similarity(np.full(5, 2.0), bins, (2.0, 2.0)) == 1  # no range at all


@pytest.mark.parametrize("reading", ["corrected", "published"])
@pytest.mark.parametrize("bins", [2, 20, BINS])
def test_similarity_of_each_region_of_mean_content(reading, bins):
    """In each set's own range, or in one from quantiles of all entries; masked ones do not count."""
    content = np.random.default_rng(0).normal(size=(2, 3, 30, 30)) * np.arange(1, 4)[:, None, None]
    content[..., np.triu_indices(30, 1)[0], np.triu_indices(30, 1)[1]] = np.nan
    content[0, 0, 5, 1] = np.nan
    shared = np.quantile(content[~np.isnan(content)], (0.005, 0.995)).tolist()
    found = similarity(content, reading, bins)
    for layer, head in np.ndindex(2, 3):
        matrix = content[layer, head]
        lower = [matrix[i, j] for i in range(30) for j in range(i) if not math.isnan(matrix[i, j])]
        for values, found_here in ((np.diag(matrix), found["diagonal"]), (lower, found["below it"])):
            span = shared if reading == "published" else (min(values), max(values))
            assert found_here[layer, head] == pytest.approx(naive(values, bins, *span), abs=1e-12)
    assert np.isnan(similarity(np.ones((1, 1, 1, 1)), bins=5)["below it"][0, 0])
    refused("bins", lambda: similarity(content, reading, bins=1))


def test_the_fit_of_whole_matrices_finds_constant_and_offset():
    rng = np.random.default_rng(2)
    matrix = np.tril(np.full((2, 9, 9), -1.5)) + 4.0 * np.eye(9)
    matrix[:, np.triu_indices(9, 1)[0], np.triu_indices(9, 1)[1]] = np.nan
    exact = fit(matrix[None])
    np.testing.assert_allclose((exact.offset[0], exact.r2[0]), [[4.0] * 2, [1.0] * 2])
    noisy = matrix + rng.normal(size=matrix.shape)
    pairs = [(i, j) for i in range(9) for j in range(1, i + 1)]
    design = np.array([[1.0, float(i == j)] for i, j in pairs])
    for head, r2 in zip(noisy, fit(noisy[None]).r2[0], strict=True):
        values = np.array([head[pair] for pair in pairs])
        left = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
        np.testing.assert_allclose(r2, 1 - (left**2).sum() / ((values - values.mean()) ** 2).sum())
