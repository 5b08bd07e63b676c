"""Retrieval by position: the prompts are what they claim, scores equal plain passes, verdicts follow the data."""

import json
from dataclasses import replace

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from answers import plain
from heard import Heard
from measured import measurement
from refused import refused
from tiny import specimen

import posbias
from families import build
from posbias.asking.local import LocalModel, Reader, reuse_is_exact
from posbias.core.errors import InputFileError, InvalidValueError, ModelError
from posbias.core.matching import CutOff
from posbias.measurement import LoadedModel, load_model
from posbias.measurement.texts.corpora import read_text
from posbias.profiles.estimate import Estimate
from posbias.profiles.measurements import load_retrieval, save_retrieval
from posbias.profiles.place_differences import profile_difference
from posbias.reports.plots.retrieval import retrieval_figure
from posbias.retrieval import ask, retrieval_curve, retrieval_fingerprint, retrieval_job, retrieve, wordings
from posbias.retrieval.trials import CHOICES, Keys, Needle

TEXT = read_text(None).content[:60_000]
CHAT = "{% for m in messages %}<{{ m.role }}> {{ m.content | trim }}\n{% endfor %}<assistant> "


def tokenizer_of(vocabulary):
    """A byte-level tokenizer: 256 bytes alone (every word several tokens), or with merges learnt from a text."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT[:20_000]], trainer)
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    made.chat_template = CHAT
    return made


BYTES, MERGED = tokenizer_of(256), tokenizer_of(1500)


def model_of(family="llama", vocabulary=300):
    return specimen(family, vocab_size=vocabulary, max_position_embeddings=2048)


@pytest.fixture(scope="module")
def loaded():
    return LoadedModel.of(model_of(), BYTES, "tiny")


@pytest.fixture
def job():
    return retrieval_job("keys", pairs=4, positions=3, prompts=4)


@pytest.fixture(scope="module")
def found(loaded):
    """A retrieval of four prompts."""
    return retrieve(loaded, retrieval_job("keys", pairs=4, positions=3, prompts=4))


# ── prompts ──


@pytest.mark.parametrize("wording", list(wordings.WORDINGS["keys"]))
def test_only_the_place_of_the_asked_pair_changes(wording):
    trials = Keys(MERGED, retrieval_job("keys", wording=wording, positions=4, seed=3, pairs=7))
    for index in range(3):
        trial = trials.trial(index)
        assert trial.depths == (0.0, 2 / 6, 4 / 6, 1.0)
        assert len(set(trial.answers)) == 7
        for text, place, depth in zip(trial.asked, trial.places, trial.depths, strict=True):
            assert text[place:].startswith(trial.answers[0].strip())
            others = [text.index(f"{other.strip()}") for other in trial.answers[1:]]
            assert sum(other < place for other in others) == round(6 * depth)
            assert others == sorted(others), "the others keep their order"
        assert len({"".join(sorted(text)) for text in trial.asked}) == 1


def test_trials_differ_by_number_and_seed_and_their_control_asks_for_somebody_who_does_not_occur():
    trials = Keys(MERGED, retrieval_job("keys", wording="list", positions=3, pairs=6))
    assert len({trials.trial(k).asked[0] for k in range(20)}) == 20
    trial = trials.trial(3)
    assert trial == Keys(MERGED, retrieval_job("keys", wording="list", positions=3, pairs=6)).trial(3)
    assert trial != Keys(MERGED, retrieval_job("keys", wording="list", positions=3, seed=1, pairs=6)).trial(3)
    for asked, control in zip(trial.asked, trial.control, strict=True):
        *rows, question = asked.splitlines()
        *same, other = control.splitlines()
        listed = [line.split(":")[0] for line in rows]
        assert rows == same
        assert question.rstrip(":") in listed
        assert other.rstrip(":") not in listed


@pytest.mark.parametrize("tokenizer", [BYTES, MERGED], ids=["bytes", "merged"])
@pytest.mark.parametrize("length", [150, 500])
def test_as_many_pairs_as_fit_the_length(tokenizer, length):
    trials = Keys(tokenizer, retrieval_job("keys", wording="list", positions=3, length=length))
    more = Keys(tokenizer, retrieval_job("keys", wording="list", positions=3, pairs=trials.pairs + 1))
    longest = [
        max(one.tokens(text) for k in range(4) for text in one.trial(k).asked) for one in (trials, more)
    ]
    assert longest[0] <= length < longest[1]


@pytest.mark.parametrize("wording", list(wordings.WORDINGS["needle"]))
@pytest.mark.parametrize(("length", "positions"), [(600, 3), (1500, 6)])
def test_a_needle_lies_between_sentences_and_nothing_else_changes(wording, length, positions):
    trials = Needle(BYTES, retrieval_job("needle", wording=wording, positions=positions, length=length), TEXT)
    for index in range(3):
        trial, around = trials.trial(index), set()
        name = trial.asked[0].split("What is ")[1].split("'s")[0]
        fact = f"{name}'s secret word is {trial.answers[0].strip()}."
        assert len(trial.answers) == CHOICES
        assert (trial.depths[0], trial.depths[-1]) == (0.0, 1.0)
        np.testing.assert_allclose(trial.depths, np.linspace(0, 1, positions), atol=0.5 / (positions - 1))
        for text, place in zip(trial.asked, trial.places, strict=True):
            assert length - 30 < trials.tokens(text) <= length + 1
            assert text[place:].startswith(trial.answers[0].strip() + ".")
            before, after = text.split(fact)
            before = before.removeprefix("<user> ").strip()
            assert before == "" or before[-1] in ".!?\"')]"
            around.add(" ".join((before + " " + after).split()))
            assert not any(f"{other} " in text for other in trial.answers[1:])
        assert len(around) == 1


# ── scores ──


@pytest.mark.parametrize("family", ["llama", "mistral", "bloom", "gpt2"])
def test_cached_scores_equal_plain_ones(family):
    model = model_of(family)
    random = np.random.default_rng(1)
    shared = random.integers(0, 256, 30).tolist()
    endings = [random.integers(0, 256, count).tolist() for count in (3, 1, 5, 3)]
    reader = Reader(model)
    for cut, tail in ((30, 9), (12, 20), (12, 20), (30, 1), (0, 7)):
        prompt = shared[:cut] + random.integers(0, 256, tail).tolist()
        found, exact = reader.endings(prompt, endings), Reader(model, reuse=False).endings(prompt, endings)
        np.testing.assert_allclose(found[0], exact[0], atol=2e-4)
        np.testing.assert_array_equal(found[1], exact[1])
    assert reuse_is_exact(model, [(shared, endings), (shared[:20], endings)])
    assert not reuse_is_exact(build("mamba")[1], [([1, 2, 3, 4], [[5, 6], [7, 8]])])


def test_plain_scores_are_sums_of_log_softmax_and_greedy_is_what_generate_writes():
    model, prompt = model_of(), [5, 17, 200, 3, 9, 9]
    with torch.no_grad():
        options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        written = model.generate(torch.tensor([prompt]), **options)[0, 6:].tolist()
        endings = [written, written[:2], [*written[:3], (written[3] + 1) % 256], [7, 7]]
        expected = []
        for ending in endings:
            logits = model(torch.tensor([prompt + ending])).logits[0].double().numpy()
            steps = logits[5 : 5 + len(ending)]
            log_z = np.log(np.exp(steps).sum(axis=1))
            expected.append(sum(steps[k, t] - log_z[k] for k, t in enumerate(ending)))
    for reuse in (False, True):
        found = Reader(model, reuse=reuse).endings(prompt, endings)
        np.testing.assert_allclose(found[0], expected, atol=1e-4)
        assert found[1].tolist()[:3] == [True, True, False]


def test_an_interrupted_pass_leaves_no_wrong_cache():
    model = model_of()
    reader, endings = Reader(model), [[1, 2], [3, 4]]
    reader.endings(list(range(20)), endings)

    def interrupt(module, given):
        raise KeyboardInterrupt

    hook = model.model.layers[1].register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        reader.endings([*range(10), *range(40, 50)], endings)
    hook.remove()
    prompt = [*range(10), *range(60, 75)]
    exact = Reader(model, reuse=False).endings(prompt, endings)[0]
    np.testing.assert_allclose(reader.endings(prompt, endings)[0], exact, atol=2e-4)


# ── the whole ──


def test_the_dataset_has_every_candidate_and_what_follows_from_them(loaded, job, found, tmp_path):
    assert dict(found.sizes) == {"prompt": 4, "position": 3, "candidate": 4}
    scores = found.log_probability.values
    np.testing.assert_array_equal(found.margin, scores[..., 0] - scores[..., 1:].max(axis=-1))
    np.testing.assert_allclose(found.margin_mean, scores[..., 0] - scores[..., 1:].mean(axis=-1))
    np.testing.assert_array_equal(found.choice, scores[..., 0] > scores[..., 1:].max(axis=-1))
    control = found.control_log_probability.values
    np.testing.assert_array_equal(found.control_margin, control[..., 0] - control[..., 1:].max(axis=-1))
    assert (np.diff(found.token, axis=1) > 0).all()
    assert json.loads(found.attrs["job"])["pairs"] == 4
    trial = Keys(loaded.tokenizer, retrieval_job("keys", wording=job.wording, positions=3, pairs=4)).trial(2)
    prompt = loaded.tokenizer(trial.asked[1])["input_ids"]
    endings = [loaded.tokenizer(answer)["input_ids"] for answer in trial.answers]
    exact = Reader(loaded.model, reuse=False).endings(prompt, endings)
    np.testing.assert_allclose(scores[2, 1], exact[0], atol=2e-4)
    np.testing.assert_array_equal(found.accuracy[2, 1], exact[1][0])
    assert found.token[2, 1] == len(loaded.tokenizer(trial.asked[1][: trial.places[1]])["input_ids"])
    read = load_retrieval(save_retrieval(found, tmp_path / "r.nc"))
    assert read.equals(found)
    assert plain(retrieval_curve(read)) == plain(retrieval_curve(found))


def test_a_retrieval_in_memory_saved_and_read_is_the_same_curve_and_profile(loaded, job, found, tmp_path):
    """Margins keep their trials, so two curves in memory are compared as their files are."""
    made = retrieval_curve(found)
    save_retrieval(found, tmp_path / "retrieval.nc")
    profile, read = made.profile(), posbias.read(tmp_path / "retrieval.nc")
    assert read.places == made == retrieval_curve(load_retrieval(tmp_path / "retrieval.nc"))
    np.testing.assert_array_equal(read.samples, profile.samples)
    np.testing.assert_array_equal(read.se, profile.se)
    other = retrieval_curve(retrieve(loaded, replace(job, seed=1)))
    assert posbias.compare(profile, other.profile()).between is not None
    assert profile_difference(profile, read).paired
    assert not profile_difference(profile, other.profile()).paired


def test_a_scorer_that_nobody_tried_tries_itself():
    """tiny-alibi has no cache that holds several endings: scores are those of plain passes from the first on."""
    model = LocalModel(load_model("tiny-alibi", tokens=64))
    prompts, endings = ("Anna owns the", "Anna owns the red"), [" lamp", " small round table", " key"]
    plain = Reader(model.loaded.model, reuse=False)
    for prompt in prompts:
        expected, _ = plain.endings(*model.split(prompt, endings))
        assert model.score(prompt, endings)[0] == pytest.approx(expected, abs=1e-3)


def test_a_model_here_writes_what_transformers_writes_and_can_be_asked(loaded):
    model, prompt = LocalModel(loaded, most_out=6), "Anna owns the"
    ids = torch.tensor([loaded.tokenizer(prompt)["input_ids"]])
    written = loaded.model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)
    assert model.write(prompt) == loaded.tokenizer.decode(
        written[0, ids.shape[1] :], skip_special_tokens=True
    )
    assert isinstance(LocalModel(loaded, api="chat", most_out=2).write("Hi"), CutOff)
    scores, _ = model.score(prompt, [" lamp", " chair"])
    alone = torch.tensor([loaded.tokenizer(prompt + " lamp")["input_ids"]])
    with torch.no_grad():
        logits = loaded.model(alone).logits[0].double().log_softmax(-1)
    rest = range(ids.shape[1], alone.shape[1])
    expected = sum(float(logits[place - 1, alone[0, place]]) for place in rest)
    assert scores[0] == pytest.approx(expected, abs=1e-3)
    curve = ask(model, retrieval_job("keys", pairs=3, positions=3, prompts=2))
    assert (curve.model, curve.results["accuracy"].shape) == ("tiny", (2, 3))


def test_thoughts_whose_marks_are_special_tokens_are_no_answer():
    """A model that writes the next word of its vocabulary, whatever it was asked."""
    words = ["[UNK]", "go", "<think>", "chair", "</think>", "<pad>", "lamp", "end"]
    kind = tokenizers.models.WordLevel({word: k for k, word in enumerate(words)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(kind)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<think>", "</think>", "<pad>"])
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", eos_token="end"
    )
    made.chat_template = "{{ messages[0].content }}"
    model = specimen("llama", vocab_size=len(words), eos_token_id=7)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "o_proj" in name or "down_proj" in name:
                weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(len(words), model.config.hidden_size))
        model.lm_head.weight.copy_(model.model.embed_tokens.weight.roll(1, 0))
    loaded = LoadedModel.of(model, made, "next")
    for api in ("chat", "completion"):
        answer = LocalModel(loaded, api=api).write("go")
        assert (answer.strip(), type(answer)) == ("lamp", str)
        thoughts = LocalModel(loaded, api=api, most_out=2).write("go")
        assert (thoughts, type(thoughts)) == ("", CutOff)


def test_an_interrupted_run_goes_on_with_the_same_bits(loaded, job, found, tmp_path):
    checkpoint, heard = tmp_path / "c.safetensors", Heard()
    with pytest.raises(KeyboardInterrupt):
        retrieve(loaded, job, checkpoint=checkpoint, on_event=Heard(stop=2))
    again = retrieve(loaded, job, checkpoint=checkpoint, on_event=heard)
    assert heard == [2, 3, 4]
    assert again.equals(found)
    other = retrieval_job("keys", pairs=4, positions=3, prompts=4, seed=1)
    refused("checkpoint", lambda: retrieve(loaded, other, checkpoint=checkpoint), error=InputFileError)


def test_another_text_is_another_job(loaded, tmp_path):
    job, paths = (
        retrieval_job("needle", length=500, positions=3, prompts=2),
        [tmp_path / name for name in "ab"],
    )
    for path, text in zip(paths, (TEXT, TEXT[:-1]), strict=True):
        path.write_text(text, encoding="utf-8")
    assert len({retrieval_fingerprint(loaded, job, path) for path in paths}) == 2


NOISE = np.random.default_rng(0).normal(0, 0.05, (2, 12, 3))
NOISE -= NOISE.mean(axis=1, keepdims=True)  # gaps are then exactly what is put in


def curve_of(found, margin, control):
    """The curve of a retrieval with other margins [position] and controls, in twelve prompts."""
    noisy = np.array(margin) + NOISE[0]
    scores = {"margin": noisy, "margin_mean": noisy + 1, "choice": (noisy > 0).astype(float)}
    scores |= {"control_margin": control + 0 * noisy, "control_margin_mean": control + 1 + NOISE[1]}
    repeated = found.isel(prompt=np.arange(12) % found.sizes["prompt"])
    return retrieval_curve(repeated.assign({k: (("prompt", "position"), v) for k, v in scores.items()}))


def test_who_copies_the_last_thing_or_prefers_another_finds_nothing(found):
    """Above chance is who prefers the right thing, and does so because it is asked for."""
    margins = np.array([-3.0, -3.0, 3.0])
    copying, wrong = curve_of(found, margins, margins), curve_of(found, np.full(3, -3.0), np.full(3, -9.0))
    assert copying.overall["choice"].interval[0] > copying.chance
    assert wrong.overall["lift"].interval[0] > 5
    for made in (copying, wrong):
        assert (made.able, made.verdict) == (False, "at chance")


@pytest.mark.parametrize(
    ("margins", "verdict", "undecided"),
    [
        ([3.0, 1.0, 2.0], "U", 0),
        ([3.0, 1.0, 1.0], "primacy", 1),
        ([1.0, 1.0, 2.0], "recency", 1),
        ([0.5, 1.0, 2.0], "recency", 0),
        ([0.5, 1.0, 0.6], "middle", 0),
        ([1.0, 1.0, 1.0], "inconclusive", 1),
    ],
)
def test_verdicts_follow_the_gaps(found, margins, verdict, undecided):
    made = curve_of(found, margins, np.array([-3.0, -3.0, -3.0]))
    assert (made.able, made.verdict, len(made.doubts)) == (True, verdict, undecided)
    gap = made.gaps["margin"]["first - middle"]
    assert gap.value == pytest.approx(margins[0] - margins[1], abs=1e-9)


def test_shares_margins_and_influence_stand_in_one_row(found):
    curve = retrieval_curve(found)
    panels = retrieval_figure(curve, measurement()).axes
    assert {ax.get_subplotspec().rowspan.start for ax in panels} == {0}
    assert len(panels) == 3


def test_gaps_are_paired(found):
    made = retrieval_curve(found)
    expected = Estimate.of_mean(found.margin.values[:, 2] - found.margin.values[:, 1])
    assert made.gaps["margin"]["last - middle"] == expected
    rate, nats = made.profile(), made.profile("margin")
    assert (rate.kind, nats.kind, made.curves["accuracy"][0].n) == ("rate", "signed", 4)
    np.testing.assert_array_equal(rate.mass, [share.value for share in made.curves["accuracy"]])
    np.testing.assert_array_equal(nats.se, [one.se for one in made.curves["margin"]])
    refused("quantity", lambda: made.profile("accurate"))


# ── refusals ──


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"pairs": 2}, "positions"),
        ({"positions": 2}, "positions"),
        ({"pairs": 4, "length": 100}, "pairs"),
        ({"task": "needle", "pairs": 4}, "pairs"),
        ({"wording": "lst"}, "wording"),
        ({"prompts": 1}, "prompts"),
        ({"seed": -1}, "seed"),
        # what tokenizer and context cannot hold
        ({"length": 20}, "length"),
        ({"pairs": 150}, "length"),
        ({"pairs": 1_000_000}, "pairs"),
        ({"task": "needle", "length": 60, "positions": 3}, "length"),
        ({"task": "needle", "length": 500, "positions": 40}, "positions"),
    ],
)
def test_wrong_jobs_are_refused(loaded, options, argument):
    refused(argument, lambda: retrieve(loaded, retrieval_job(**options)))


def test_texts_and_models_that_cannot_be_asked_are_refused(loaded, job, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("One. Two. Three.", encoding="utf-8")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    blind = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")
    broken = model_of()
    broken.lm_head.weight.data[:] = float("nan")
    for call, error in (
        (lambda: retrieve(loaded, retrieval_job("needle", length=500), text=short), InputFileError),
        (lambda: retrieve(loaded, job, text=short), InvalidValueError),
        (lambda: retrieve(LoadedModel.of(model_of(), blind, "blind"), job), ModelError),
        (lambda: Keys(blind, retrieval_job("keys", wording="chat", positions=3, pairs=4)), ModelError),
        (lambda: retrieve(LoadedModel.of(model_of(vocabulary=90), BYTES, "small"), job), ModelError),
        (lambda: retrieve(LoadedModel.of(broken, BYTES, "broken"), job), ModelError),
    ):
        with pytest.raises(error):
            call()


@pytest.mark.slow
@pytest.mark.real_model
def test_smollm2_finds_things_by_their_owners():
    job = retrieval_job("keys", pairs=5, positions=3, prompts=8, seed=1)
    curve = retrieval_curve(retrieve(load_model("smollm2-135m"), job))
    # over 200 prompts: lift 1.9 ± .07, choice .53 where chance is .20
    assert curve.overall["lift"].value > 1.0
    assert curve.overall["choice"].value > 0.3
