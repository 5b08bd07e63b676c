"""The test files of docs/results-made-elsewhere.md that other packages wrote, made again.

    python tests/elsewhere/make.py MODEL tests/elsewhere inseq captum lm_eval ruler liu capitals

MODEL is the folder of a transformers model (the files that are there came of SmolLM2-135M, saved with
`save_pretrained`). It needs inseq, captum and lm-eval, which posbias does not. RULER and the repository of Liu et
al. are no packages: their scripts' fields are filled with the answers of the same model to prompts made here.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

SEED, SHOWN = 0, 12
"""Of the prompts, and tokens generated at most."""
WORDS = (
    "amber",
    "basil",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "heron",
    "ivory",
    "jolly",
    "kayak",
    "lemon",
    "mango",
    "north",
    "olive",
    "pearl",
)
PROMPTS = (
    "The old harbour master said that the boat from Lisbon would leave at",
    "The young engineer thought that the bridge near Turin would stand for",
    "The tall librarian wrote that the book about Vienna would open with",
    "The quiet gardener found that the roses beside Paris would bloom in",
)


def make_inseq(model, folder):
    import inseq  # pyright: ignore[reportMissingImports]

    for method, options in (("saliency", {}), ("integrated_gradients", {"n_steps": 16})):
        attributed = inseq.load_model(str(model), method).attribute(
            list(PROMPTS),
            generation_args={"max_new_tokens": 2, "do_sample": False},
            show_progress=False,
            **options,
        )
        kept = (
            attributed.aggregate("sum") if method == "integrated_gradients" else attributed.aggregate("vnorm")
        )
        kept.save(str(folder / f"inseq_{method}.json"), overwrite=True)


def make_captum(model, folder):
    import numpy as np
    import torch
    from captum.attr import FeatureAblation, LLMAttribution, TextTokenInput  # pyright: ignore[reportMissingImports]
    from safetensors.numpy import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model).eval()
    explained = LLMAttribution(FeatureAblation(network), tokenizer)
    results = [explained.attribute(TextTokenInput(text, tokenizer), target=" noon") for text in PROMPTS]
    fields = ("seq_attr", "token_attr", "input_tokens", "output_tokens")
    fields_of = [{name: getattr(result, name) for name in fields} for result in results]
    plain = [
        {key: one.tolist() if torch.is_tensor(one) else one for key, one in row.items()} for row in fields_of
    ]
    (folder / "captum_llm_attribution.json").write_text(json.dumps(plain))
    longest = max(result.seq_attr.shape for result in results)
    attributed = np.stack([result.seq_attr.numpy() for result in results if result.seq_attr.shape == longest])
    save_file({"attributions": attributed}, folder / "captum_attributions.safetensors")


def lists(count, length, seed=SEED):
    """Lists of words with numbers, each asked at every third place: records with the place asked for."""
    draw = random.Random(seed)
    for index in range(count):
        pairs = [(word, str(draw.randint(1000, 9999))) for word in draw.sample(WORDS, length)]
        gold = pairs.pop()
        for place in range(0, length, 3):
            yield index, [*pairs[:place], gold, *pairs[place:]], gold, place


def make_lm_eval(model, folder):
    import lm_eval  # pyright: ignore[reportMissingImports]
    from lm_eval.tasks import TaskManager  # pyright: ignore[reportMissingImports]

    work = folder / "lm_eval_task"
    work.mkdir(exist_ok=True)
    with (work / "lists.jsonl").open("w") as file:
        for _, pairs, (key, value), place in lists(10, 10):
            said = " ".join(f"The number of the {word} is {number}." for word, number in pairs)
            asked = f"{said} What is the number of the {key}? The number of the {key} is"
            file.write(json.dumps({"input": asked, "answer": value, "position": place}) + "\n")
    task = {
        "task": "posbias_lists",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(work / "lists.jsonl")}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{input}}",
        "doc_to_target": "{{answer}}",
        "target_delimiter": " ",
        "filter_list": [
            {"name": "stripped", "filter": [{"function": "remove_whitespace"}, {"function": "take_first"}]}
        ],
        "generation_kwargs": {"until": [".", "\n"], "max_gen_toks": SHOWN, "do_sample": False},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    (work / "posbias_lists.yaml").write_text(json.dumps(task))
    found = lm_eval.simple_evaluate(
        "hf",
        model_args=f"pretrained={model},dtype=float32",
        tasks=["posbias_lists"],
        task_manager=TaskManager(include_path=str(work), include_defaults=False),
        log_samples=True,
        device="cpu",
    )
    from lm_eval.loggers import EvaluationTracker  # pyright: ignore[reportMissingImports]

    tracker = EvaluationTracker(output_path=str(work))
    samples = found.pop("samples")
    tracker.save_results_aggregated(results=found, samples=samples)
    tracker.save_results_samples("posbias_lists", samples["posbias_lists"])


def answers(model):
    """A function from a prompt to the model's greedy continuation."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network: Any = AutoModelForCausalLM.from_pretrained(model).eval()

    def answer(prompt):
        given = tokenizer(prompt, return_tensors="pt")
        with torch.inference_mode():
            made = network.generate(**given, max_new_tokens=SHOWN, do_sample=False)
        return tokenizer.decode(made[0, given.input_ids.shape[1] :], skip_special_tokens=True)

    return answer


def make_ruler(model, folder):
    """Fields of scripts/pred/call_api.py of hsiehjackson/RULER, and the sentences of its needles."""
    answer, rows = answers(model), []
    for number, (_, pairs, (key, value), _) in enumerate(lists(10, 10, SEED + 1)):
        said = " ".join(f"One of the special magic numbers for {word} is: {one}." for word, one in pairs)
        prompt = (
            "A special magic number is hidden within the following text. Make sure to memorize it. I will quiz "
            f"you about the number afterwards.\n{said}\nWhat is the special magic number for {key} mentioned in "
            f"the provided text? The special magic number for {key} mentioned in the provided text is"
        )
        row = {"index": number, "pred": answer(prompt), "input": prompt, "outputs": [value]}
        rows.append(row | {"others": {}, "truncation": -1, "length": -1})
    (folder / "ruler_niah_multikey.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_liu(model, folder):
    """Fields of scripts/get_kv_responses_from_mpt.py of nelson-liu/lost-in-the-middle, a file for each place."""
    answer, rows = answers(model), {}
    for _, pairs, gold, place in lists(10, 10, SEED + 2):
        said = ",\n ".join(f'"{key}": "{value}"' for key, value in pairs)
        prompt = (
            "Extract the value corresponding to the specified key in the JSON object below.\n\nJSON data:\n"
            f'{{{said}}}\n\nKey: "{gold[0]}"\nCorresponding value:'
        )
        first = [gold, *(pair for pair in pairs if pair != gold)]
        row = {"ordered_kv_records": first, "key": gold[0], "value": gold[1], "model_prompt": prompt}
        row |= {"model_answer": answer(prompt), "model": "SmolLM2-135M", "model_temperature": 0.0}
        rows.setdefault(place, []).append(row | {"model_top_p": 1.0, "model_ordered_kv_records": pairs})
    place_of = folder / "liu_kv"
    place_of.mkdir(exist_ok=True)
    for place, kept in rows.items():
        lines = "".join(json.dumps(row) + "\n" for row in kept)
        (place_of / f"kv-10-gold_at_{place}-predictions.jsonl").write_text(lines)


if __name__ == "__main__":
    model, folder = Path(sys.argv[1]), Path(sys.argv[2])
    for name in sys.argv[3:]:
        globals()[f"make_{name}"](model, folder)
