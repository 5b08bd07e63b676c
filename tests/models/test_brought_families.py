"""Models of a family that another package brings: loaded through it, captured under the self-check."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from project import install
from tiny import llama, word_tokenizer

import posbias
from posbias.core.errors import ModelError, PluginError
from posbias.measurement import load_model
from posbias.measurement.models.families import family_for
from posbias.measurement.selfchecks import selfcheck

MODULE = '''
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaAttention
from posbias.measurement.models.families import Family as Captured
from posbias.core.packages import ModelFamily
from posbias.theory.huggingface_families import Family

class ForeignConfig(LlamaConfig):
    model_type = "foreign"

class Untrue(LlamaAttention):
    """Attention that tells other weights than those it uses."""

    def forward(self, *args, **kwargs):
        mixed, weights = super().forward(*args, **kwargs)
        return mixed, weights if weights is None else weights.roll(1, -1)

class ForeignForCausalLM(LlamaForCausalLM):
    config_class = ForeignConfig

    def __init__(self, config):
        super().__init__(config)
        if getattr(config, "untrue", False):
            for layer in self.model.layers:
                layer.self_attn.__class__ = Untrue

AutoConfig.register("foreign", ForeignConfig, exist_ok=True)
AutoModelForCausalLM.register(ForeignConfig, ForeignForCausalLM, exist_ok=True)
FAMILY = ModelFamily(Family(), Captured("foreign", attention=("eager",)))
ALONE = ModelFamily(Family())
NO_ROW = ModelFamily(Family(), "rotary")
'''


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """A function that installs the package with an object for its family, and saves a tiny model of it."""
    site, folder = tmp_path / "site", tmp_path / "model"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    llama().save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    path = folder / "config.json"
    settings_of = json.loads(path.read_text()) | {
        "model_type": "foreign",
        "architectures": ["ForeignForCausalLM"],
    }
    path.write_text(json.dumps(settings_of))

    def made(what: str) -> Path:
        install(site, "foreign-models", MODULE, {"foreign": what})
        return folder

    yield made
    sys.modules.pop("foreign_models", None)


def test_its_package_lets_transformers_load_it_and_the_capture_has_to_prove_itself(foreign):
    folder = foreign("FAMILY")
    loaded = load_model(folder)
    assert type(loaded.model).__name__ == "ForeignForCausalLM"
    assert loaded.family.attention == ("eager",)
    assert not loaded.verified
    ids = torch.tensor([1, 4, 2, 3, 5, 1, 2, 4])
    found = selfcheck(loaded, ids)
    assert found["max_deviation"] <= 1e-5
    assert found["mixed_deviation"] <= 1e-5
    plain = llama()(ids[None]).logits
    torch.testing.assert_close(loaded.model(ids[None]).logits, plain, rtol=1e-5, atol=1e-5)


def test_without_hints_a_family_is_taken_as_one_nobody_knows(foreign):
    loaded = load_model(foreign("ALONE"))
    assert (loaded.family.positional, loaded.family.checked) == ("inferred", False)


def test_the_self_check_refuses_a_model_that_is_not_what_was_captured(foreign):
    folder = foreign("FAMILY")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"untrue": True}))
    with pytest.raises(ModelError, match="attention"):
        selfcheck(load_model(folder), torch.tensor([1, 4, 2, 3, 5, 1, 2, 4]))


def test_a_hint_that_is_no_row_is_a_line_naming_the_package(foreign):
    with pytest.raises(PluginError, match=r"package foreign-models 0\.3: capture of foreign: "):
        load_model(foreign("NO_ROW"))


def test_ours_need_no_package(foreign):
    """A name that posbias knows is not looked up."""
    foreign("FAMILY")
    assert family_for(llama().config).checked
    assert "foreign_models" not in sys.modules


@pytest.mark.slow
def test_a_measurement_of_it_is_written_by_the_command(foreign, tmp_path, text):
    folder = foreign("FAMILY")
    paths = [str(tmp_path / "site"), str(Path(posbias.__file__).parents[1])]
    out = tmp_path / "out.nc"
    sizes = ["--tokens", "16", "--prompts", "2", "--text", str(text)]
    command = [sys.executable, "-m", "posbias", "measure", str(folder), *sizes, "-o", str(out), "-q"]
    answer = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    assert out.is_file()
