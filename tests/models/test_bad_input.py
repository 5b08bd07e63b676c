"""Bad input ends in one line that names the argument, what was given and what is right."""

import json
import shutil
import subprocess
import sys

import pytest
import torch

from posbias.core.errors import InputFileError, InvalidValueError, ModelError, PosbiasError
from posbias.core.machine import available
from posbias.measurement import Request, load_model, measure
from posbias.measurement.memory import memory_parts


def one_line(caught):
    assert isinstance(caught.value, PosbiasError)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"tokens": 1},
        {"tokens": 2.5},
        {"tokens": True},
        {"tokens": 65},
        {"prompts": 0},
        {"seed": -1},
        {"seed": "x"},
    ],
)
def test_bad_numbers(tiny, text, changed):
    with pytest.raises(InvalidValueError, match=f"^{next(iter(changed))}: ") as caught:
        measure(tiny, text=text, **({"tokens": 8, "prompts": 2} | changed))
    one_line(caught)


@pytest.mark.parametrize("content", [None, b"w1 \xff\xfe w2", b"", b"w1 w2 w3", b"w1 " * 20])
def test_bad_texts(tiny, tmp_path, content):
    path = tmp_path / "given.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputFileError) as caught:
        measure(tiny, text=path, tokens=8, prompts=3)
    assert one_line(caught).startswith("text: ")


def test_absurd_sizes_are_refused_before_anything_is_allocated(build, text):
    vast = build(max_position_embeddings=10**9)
    with pytest.raises(InvalidValueError, match=r"^tokens: ") as caught:
        measure(vast, text=text, tokens=10**6, prompts=1)
    one_line(caught)
    requests = Request(tokens=512, dense_logits=True), Request(tokens=512), Request(tokens=256)
    dense, plain, short = (sum(memory_parts(vast.model.config, request).values()) for request in requests)
    assert dense > plain > short
    assert available() is None or available() > 2**20


@pytest.mark.parametrize("where", ["weight of a layer", "output"])
def test_activations_that_are_not_finite_are_located(tiny, text, where):
    if where == "output":
        tiny.model.lm_head.weight.data[3] = torch.inf
        says = "model: the outputs of tiny are not finite in the prompt of the self-check"
    else:
        tiny.model.model.layers[1].self_attn.v_proj.weight.data[0, 0] = torch.nan
        says = "model: the update of layer 1 is not finite in the prompt of the self-check"
    with pytest.raises(ModelError, match=says) as caught:
        measure(tiny, text=text, tokens=8, prompts=2)
    one_line(caught)


@pytest.mark.parametrize("name", ["smolm2-135m", "smollm2"])
def test_an_unknown_model_is_answered_with_the_nearest(name):
    with pytest.raises(ModelError, match=r"^model: .*did you mean 'smollm2-135m'") as caught:
        load_model(name)
    one_line(caught)


def test_missing_folders_and_files(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "weights.bin").write_bytes(b"x")
    for path in ("nowhere", "nowhere.gguf", "empty", "weights.bin"):
        with pytest.raises(ModelError) as caught:
            load_model(tmp_path / path)
        assert one_line(caught).startswith("model: ")


def test_damaged_folders(folder, tmp_path):
    def edit(**changes):
        def damage(copy):
            config = json.loads((copy / "config.json").read_text())
            (copy / "config.json").write_text(json.dumps(config | changes))

        return damage

    damages = (
        lambda copy: (copy / "config.json").write_text("{"),
        lambda copy: (copy / "model.safetensors").unlink(),
        lambda copy: (copy / "model.safetensors").write_bytes(b"short"),
        edit(num_hidden_layers=4),
        edit(num_hidden_layers=0),
        edit(model_type="gpt2"),
    )
    for number, damage in enumerate(damages):
        copy = tmp_path / str(number)
        shutil.copytree(folder, copy)
        damage(copy)
        with pytest.raises(ModelError) as caught:
            load_model(copy)
        assert one_line(caught).startswith("model: ")


@pytest.mark.parametrize(
    "package", ["torch", *(pytest.param(one, marks=pytest.mark.slow) for one in ("transformers", "xarray"))]
)
def test_a_missing_package_is_named_with_its_command(package):
    script = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "import posbias.measurement\n"
        "from posbias.core.errors import MissingPackageError\n"
        "assert posbias.measurement.available_models()\n"
        "try: posbias.measurement.measure\n"
        "except MissingPackageError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{package}: not installed")
    assert "pip install 'posbias[measure]'" in done.stdout


def test_importing_and_listing_stay_light():
    script = (
        "import sys, posbias.measurement; posbias.measurement.available_models(); posbias.measurement.fetch\n"
        "print({'torch', 'transformers', 'xarray', 'posbias.theory'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
