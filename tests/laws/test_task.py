"""The retrieval task and its random numbers: what holds of every sequence, and what only in distribution."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from refused import refused
from scipy import stats

from posbias.training.philox import LEVELS, Draws, below, normals_of, philox, quantiles
from posbias.training.task import Batch, Feed, RetrievalTask, make_world, novel_sequences

TASK = RetrievalTask()
SMALL = RetrievalTask(items=4, burstiness=2, classes=6, labels=3, dimension=5)


def world_of(task, seed):
    """The world of one member."""
    world = make_world(task, [seed])
    return SimpleNamespace(**{name: held[0] for name, held in vars(world).items()})


def batch_of(task, seed, iteration, size):
    """The training batch of one member."""
    return first_of(Batch(*Feed([task], [seed], size).batch(iteration)))


def first_of(batch):
    """The first member's part."""
    return SimpleNamespace(tokens=batch.tokens[0], target=batch.target[0])


def novel(task, seed, size, item=None, number=1):
    """One member's sequences of new classes."""
    return first_of(novel_sequences(task, make_world(task, [seed]), number, size).asking(item))


def paired(task, seed, first, second, size, number=1):
    """One member's paired tests, and which are informative."""
    drawn = novel_sequences(task, make_world(task, [seed]), number, size, place=(first, second))
    both = drawn.paired(first, second)
    return first_of(both.first), first_of(both.second), both.informative[0]


@st.composite
def tasks(draw):
    burstiness, kinds = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    items = burstiness * kinds
    classes = draw(st.integers(max(2, kinds), 40))
    places = st.lists(st.integers(0, items - 1), min_size=1, unique=True).map(tuple)
    return RetrievalTask(
        items=items,
        dimension=draw(st.integers(1, 12)),
        classes=classes,
        labels=draw(st.integers(2, classes)),
        burstiness=burstiness,
        inputs=draw(st.sampled_from(["gaussian_mixture", "fixed_vocabulary"])),
        within_class_noise=draw(st.sampled_from([0.0, 0.75, 1e200])),
        shared_direction=draw(st.sampled_from([0.0, 0.75, 3.0])),
        answers=draw(st.none() | places),
        embedding=draw(st.sampled_from(["variance", "deviation"])),
    )


def plain(task):
    """The task as one whose items are their class's vector and nothing else, so that classes can be read off."""
    return dataclasses.replace(task, inputs="gaussian_mixture", within_class_noise=0.0, dimension=16)


def read(tokens, vectors):
    """Which of `vectors` [entry, dimension] each token [..., dimension] is; exact up to rounding."""
    distance = (tokens[..., None, :] - vectors).abs().amax(-1)
    assert float(distance.amin(-1).max()) < 1e-6
    return distance.argmin(-1)


def generate(task, world, rng):
    """The paper's procedure for one sequence: its tokens, its target, the item that was asked for."""
    kinds = rng.choice(task.classes, size=task.kinds, replace=False)
    classes = np.repeat(kinds, task.burstiness)
    rng.shuffle(classes)

    def vector(k):
        centre = world.centres[k].numpy()
        if task.inputs == "fixed_vocabulary":
            mixed = centre + task.shared_direction * world.direction.numpy()
            return mixed / np.sqrt(1 + task.shared_direction**2)
        noise = rng.normal(0.0, task.deviation, task.dimension)
        return (centre + task.within_class_noise * noise) / np.sqrt(1 + task.within_class_noise**2)

    tokens = []
    for k in classes:
        tokens += [vector(k), world.label_vectors[world.class_labels[k]].numpy()]
    answer = rng.choice(task.answers if task.answers is not None else task.items)
    tokens.append(vector(classes[answer]))
    return np.array(tokens), int(world.class_labels[classes[answer]]), classes, answer


@given(task=tasks(), seed=st.integers(0, 2**32), iteration=st.integers(0, 100))
@examples(60)
def test_a_training_sequence_shows_each_class_equally_often_with_its_label(task, seed, iteration):
    task = plain(task)
    world = world_of(task, seed)
    batch = batch_of(task, seed, iteration, 7)
    assert batch.tokens.shape == (7, task.tokens, task.dimension)
    classes = read(batch.tokens[:, 0::2], world.centres)
    assert torch.equal(batch.tokens[:, 1::2], world.label_vectors[world.class_labels[classes[:, :-1]]])
    assert torch.equal(batch.target, world.class_labels[classes[:, -1]])
    for row in classes:
        _, counts = row[:-1].unique(return_counts=True)
        assert counts.tolist() == [task.burstiness] * task.kinds
        assert any(row[place] == row[-1] for place in task.answers or range(task.items))


@given(task=tasks(), seed=st.integers(0, 2**32))
@examples(60)
def test_every_sequence_is_finite_and_a_function_of_seed_and_iteration(task, seed):
    one, same = (batch_of(task, seed, 5, 6) for _ in range(2))
    assert one.tokens.isfinite().all()
    assert torch.equal(one.tokens, same.tokens)
    assert torch.equal(one.target, same.target)
    if task.inputs == "gaussian_mixture" and task.within_class_noise:
        assert not torch.equal(one.tokens, batch_of(task, seed, 6, 6).tokens)
        assert not torch.equal(one.tokens, batch_of(task, seed + 1, 5, 6).tokens)


def test_batches_are_the_same_in_any_company_and_order():
    """To the bit: alone, among five, among forty, with neighbours of other tasks, in any order of iterations."""
    tasks = [SMALL, dataclasses.replace(SMALL, answers=(0, 3)), dataclasses.replace(SMALL, classes=9)]
    for members in (5, 40):
        company = [tasks[member % 3 if member < 4 else 0] for member in range(members)]
        feed = Feed(company, range(members), 8)
        for iteration in (0, 15, 2**40, 2, 1):
            tokens, target = feed.batch(iteration)
            for member in (0, 1, 2, members - 1):
                alone = batch_of(company[member], member, iteration, 8)
                assert torch.equal(tokens[member], alone.tokens)
                assert torch.equal(target[member], alone.target)


@given(task=tasks(), cut=st.integers(1, 8))
@settings(max_examples=30)
def test_sequences_do_not_depend_on_how_many_are_drawn(task, cut):
    world = make_world(task, [3, 8])
    whole = novel_sequences(task, world, 2, 9).asking()
    parts = [novel_sequences(task, world, 2, *rows).asking() for rows in ((cut, 0), (9 - cut, cut))]
    assert torch.equal(whole.tokens, torch.cat([part.tokens for part in parts], dim=1))
    assert torch.equal(whole.target, torch.cat([part.target for part in parts], dim=1))


def test_every_set_of_classes_and_every_order_is_equally_likely():
    task = plain(RetrievalTask(items=4, burstiness=2, classes=4, labels=4))
    world = world_of(task, 1)
    batch = batch_of(task, 1, 0, 20_000)
    rows = read(batch.tokens[:, 0:-1:2], world.centres).numpy()
    _, counts = np.unique(rows, axis=0, return_counts=True)
    assert len(counts) == 6 * 6  # sets of two classes, arrangements of two of each
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize(("direction", "shared"), [("training", 0.36), ("drawn", 0.0)])
def test_a_drawn_test_direction_is_not_that_of_training(direction, shared):
    task = RetrievalTask(inputs="fixed_vocabulary", test_direction=direction)
    world = make_world(task, range(4))
    tokens = novel_sequences(task, world, 0, 200).asking().tokens[:, :, 0::2].flatten(1, 2)
    centre, other = task.shares
    known = centre * world.centres + other * world.direction[:, None]
    unit = torch.nn.functional.normalize
    cosine = unit(tokens, dim=2) @ unit(known, dim=2).transpose(1, 2)
    assert float(cosine.mean()) == pytest.approx(shared, abs=0.15)


@pytest.mark.parametrize(("inputs", "answers"), [("gaussian_mixture", None), ("fixed_vocabulary", (0, 3))])
def test_batches_are_distributed_as_the_papers_procedure(inputs, answers):
    """Class repeats, label agreement and every product of two tokens, against one sequence at a time."""
    task = RetrievalTask(
        items=4, burstiness=2, classes=5, labels=3, dimension=4, inputs=inputs, answers=answers
    )
    world, rng, size = world_of(task, 2), np.random.default_rng(0), 4000
    plainly = [generate(task, world, rng) for _ in range(size)]
    batch = batch_of(task, 2, 0, size)
    ours, theirs = batch.tokens.double().numpy(), np.array([one[0] for one in plainly])
    i, j = np.triu_indices(task.tokens)
    for statistic in (lambda x: x.reshape(size, -1), lambda x: np.einsum("sid,sjd->sij", x, x)[:, i, j]):
        a, b = statistic(ours), statistic(theirs)
        error = np.sqrt((a.var(0) + b.var(0)) / size) + 1e-7
        # some 80 comparisons: 4.5 standard errors
        assert np.abs((a.mean(0) - b.mean(0)) / error).max() < 4.5
    counts = [
        np.bincount(target, minlength=3) for target in (batch.target.numpy(), [one[1] for one in plainly])
    ]
    assert stats.chi2_contingency(np.array(counts)[:, np.sum(counts, axis=0) > 0]).pvalue > 1e-4


@pytest.mark.parametrize(("embedding", "length"), [("variance", 1.0), ("deviation", 1 / 8)])
def test_embeddings_are_as_long_as_they_are_called(embedding, length):
    task = dataclasses.replace(TASK, embedding=embedding)
    world = world_of(task, 0)
    for vectors in (world.centres, world.label_vectors):
        norms = vectors.double().square().sum(-1)
        assert abs(float(norms.mean()) - length**2) < 4 * float(norms.std()) / len(norms) ** 0.5


@given(task=tasks(), seed=st.integers(0, 2**20), data=st.data())
@examples(60)
def test_paired_tests_differ_only_where_they_must(task, seed, data):
    places = st.integers(0, task.items - 1)
    first, second = data.draw(places), data.draw(places)
    world = world_of(task, seed)
    test, back, informative = paired(task, seed, first, second, 9)
    one, other = test.tokens, back.tokens
    assert torch.equal(one[:, 2 * first], one[:, 2 * second])
    assert torch.equal(other[:, 2 * first], other[:, 2 * second])
    assert torch.equal(one[:, 1::2], other[:, 1::2])
    rest = [2 * place for place in range(task.items) if place not in (first, second)]
    assert torch.equal(one[:, rest], other[:, rest])
    labels = read(one[:, 1::2], world.label_vectors)
    assert torch.equal(world.label_vectors[test.target], one[:, 2 * first + 1])
    assert torch.equal(world.label_vectors[back.target], one[:, 2 * second + 1])
    assert torch.equal(informative, test.target != back.target)
    assert labels.shape == (9, task.items)


@pytest.mark.parametrize("answer", [0, 3, 7])
def test_a_test_asks_for_one_item_of_classes_that_are_none_of_the_known_ones(answer):
    task = plain(dataclasses.replace(TASK, burstiness=1))
    world = world_of(task, 0)
    batch = novel(task, 0, 30, answer)
    assert torch.equal(batch.tokens[:, -1], batch.tokens[:, 2 * answer])
    assert torch.equal(world.label_vectors[batch.target], batch.tokens[:, 2 * answer + 1])
    assert float((batch.tokens[:, 0::2, None] - world.centres).abs().amax(-1).min()) > 0.01


def test_test_sets_of_other_numbers_and_pairs_are_other_sequences():
    drawn = [
        paired(SMALL, 0, 0, 3, 4)[0].tokens,
        paired(SMALL, 0, 0, 3, 4, number=2)[0].tokens,
        paired(SMALL, 0, 1, 3, 4)[0].tokens,
        novel(SMALL, 0, 4).tokens,
        novel(SMALL, 1, 4).tokens,
    ]
    assert not any(torch.equal(a, b) for n, a in enumerate(drawn) for b in drawn[:n])


def test_what_cannot_be_a_task_is_refused():
    assert TASK.places == {"first": 0, "middle": 4, "last": 7}
    assert RetrievalTask(middle=3).places["middle"] == 3
    wrong = {"burstiness": 3, "labels": 4096, "middle": 8, "inputs": "gaussian", "within_class_noise": -0.1}
    wrong |= {"test_direction": "drawn"}
    for name, given_ in wrong.items():
        refused(name, lambda name=name, given_=given_: RetrievalTask(**{name: given_}))
    refused("classes", lambda: RetrievalTask(classes=3, labels=2, burstiness=1))
    for answers in ((0, 8), (), (0, 0)):
        refused("answers", lambda answers=answers: RetrievalTask(answers=answers))


# --- counter-based random numbers ------------------------------------------------------------------------


SEEDS = (0, 7, 2**62)
WORD = 2**32 - 1


def by_definition(key, counter):
    """Philox 4x32-10 by its definition, in Python's integers."""
    a, b, c, d = counter
    k, m = key
    for _ in range(10):
        one, other = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (other >> 32) ^ b ^ k, other & WORD, (one >> 32) ^ d ^ m, one & WORD
        k, m = (k + 0x9E3779B9) & WORD, (m + 0xBB67AE85) & WORD
    return a, b, c, d


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((WORD,) * 4, (WORD, WORD), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_authors_known_answers(counter, key, expected):
    """Salmon et al. 2011, the test vectors of Random123."""
    assert by_definition(key, counter) == expected


@given(
    number=st.integers(0, 2**63 - 1),
    start=st.integers(0, 2**31),
    rows=st.integers(1, 4),
    each=st.integers(1, 21),
)
def test_compiled_words_and_those_of_tensors_are_the_algorithms(number, start, rows, each):
    draws = Draws(SEEDS, "test", 3)
    words = draws.words(number, rows, each, start)
    keys = draws._held
    assert torch.equal(words, philox(keys, number, start, rows, each))
    assert torch.equal(words, philox(keys, torch.tensor(number), start, rows, each))
    for member, row in np.ndindex(len(SEEDS), rows):
        counters = [(block, start + row, number & WORD, number >> 32) for block in range(-(-each // 4))]
        expected = [word for counter in counters for word in by_definition(keys[member].tolist(), counter)][
            :each
        ]
        assert words[member, row].tolist() == expected
    normals = draws.normals(number, rows, each, start)
    assert torch.equal(normals, normals_of(philox(keys, number, start, rows, (each + 1) // 2), each))


def test_streams_of_other_seeds_names_and_places_are_others():
    drawn = [
        Draws([seed], name, *place).words(0, 1, 8)
        for seed in (0, 1)
        for name in ("one", "other")
        for place in ((), (0,), (1, 2))
    ]
    assert len({tuple(words.flatten().tolist()) for words in drawn}) == 12


def test_normal_numbers_are_normal():
    values = quantiles().double().numpy()
    assert len(values) == LEVELS
    assert abs(values.mean()) < 1e-8
    assert abs(values.var() - 1) < 1e-6
    # the distribution function, at and between the values
    steps = (np.arange(LEVELS) + 0.5) / LEVELS
    assert np.abs(stats.norm.cdf(values) - steps).max() < 1e-5
    assert stats.kurtosis(values) == pytest.approx(0, abs=2e-3)
    drawn = Draws(range(20), "normal").normals(5, 100, 250).flatten().double().numpy()
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    assert abs(np.corrcoef(drawn.reshape(-1, 2).T)[0, 1]) < 4 / np.sqrt(len(drawn) / 2)
    uniform = Draws([1, 2], "uniform").uniform(9, 100, 100).flatten().double()
    assert -1 <= float(uniform.min()) < -0.99
    assert 0.99 < float(uniform.max()) < 1
    assert stats.kstest(uniform.numpy(), stats.uniform(-1, 2).cdf).pvalue > 1e-4
    for limit in (1, 2, 7, 2048):
        counts = torch.bincount(Draws([5], "integers").below(limit, 0, 200, 512).flatten(), minlength=limit)
        assert len(counts) == limit
        assert limit == 1 or stats.chisquare(counts.numpy()).pvalue > 1e-4
        assert below(limit, torch.tensor([0, WORD])).tolist() == [0, limit - 1]
