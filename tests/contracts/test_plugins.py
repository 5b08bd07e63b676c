"""Families that another installed package brings: read, refused in one line, and never in the place of ours."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from project import install

import posbias
from posbias.core import packages
from posbias.core.errors import InvalidValueError, PluginError
from posbias.theory.huggingface import from_huggingface

READ = """
import posbias
from posbias.core.packages import ModelFamily
from posbias.theory.huggingface_families import Family

def read(config):
    heads, chunk = config["heads"], posbias.Chunked(config["chunk"])
    layers = posbias.Layer(heads=heads, mask=chunk, positional=posbias.ALiBi()), posbias.Layer(heads=heads)
    return posbias.Architecture(config["depth"], layers, posbias.ConstantMixing(0.5))

FAMILY = ModelFamily(read)
ROW = Family(lambda config: posbias.NoPE(), remarks=("a remark of its own",))
NEITHER = 3
wrong = lambda config: "no architecture"
fails = lambda config: config["missing"]
picky = lambda config: posbias.Architecture(-1)
"""
CONFIG = {"model_type": "foreign", "heads": 2, "chunk": 8, "depth": 3}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of packages that Python looks in."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in [name for name in sys.modules if name.startswith("foreign_")]:
        del sys.modules[name]


def test_a_command_reads_what_a_package_brings(tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    install(site, "foreign-models", READ, {"foreign": "FAMILY"})
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    paths = [str(site), str(Path(posbias.__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [
        sys.executable,
        "-m",
        "posbias",
        "predict",
        str(tmp_path / "config.json"),
        "--tokens",
        "40",
        "--json",
    ]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    near = posbias.Layer(heads=2, mask=posbias.Chunked(8), positional=posbias.ALiBi())
    expected = posbias.Architecture(3, (near, posbias.Layer(heads=2)), posbias.ConstantMixing(0.5))
    written = json.loads(answer.stdout)
    assert written["profile"] == pytest.approx(posbias.predict(expected, 40).mass.tolist(), rel=1e-12)
    assert "foreign: read by the package foreign-models 0.3, not by posbias" in answer.stdout


def test_a_row_is_read_as_ours_are(site):
    install(site, "foreign-models", READ, {"foreign": "ROW"})
    config = {"model_type": "foreign", "num_hidden_layers": 4, "num_attention_heads": 2}
    architecture = from_huggingface(config)
    assert architecture.depth == 4
    assert architecture.layers == (posbias.Layer(heads=2),)
    assert architecture.name == "foreign"
    assert architecture.remarks[0] == "a remark of its own"
    assert "read by the package foreign-models 0.3" in architecture.remarks[1]
    with pytest.raises(InvalidValueError, match=r"^layer_types: "):
        from_huggingface(config | {"layer_types": ["chunked_attention"] * 4})


def test_none_can_take_the_place_of_ours(site):
    install(site, "foreign-models", "raise SystemError('imported')", {"gpt2": "FAMILY", "llama": "FAMILY"})
    config = {"model_type": "gpt2", "n_layer": 2, "n_head": 2}
    assert from_huggingface(config).layers[0].positional.encoding == "learned"
    assert packages.names() == {"gpt2": "foreign-models 0.3", "llama": "foreign-models 0.3"}
    assert "foreign_models" not in sys.modules


def test_nothing_is_imported_until_a_name_is_asked_for(site):
    install(site, "foreign-models", "raise SystemError('imported')", {"foreign": "FAMILY"})
    with pytest.raises(InvalidValueError, match=r"^model_type: .*did you mean 'foreign'"):
        from_huggingface({"model_type": "foregn"})
    assert "foreign_models" not in sys.modules


@pytest.mark.parametrize(
    ("module", "what"),
    [
        ("raise SystemError('no luck\\ntoday')", "FAMILY"),
        ("import no_such_module", "FAMILY"),
        *((READ, what) for what in ("ABSENT", "NEITHER", "wrong", "fails")),
    ],
)
def test_one_that_is_broken_is_a_line_naming_its_package(site, module, what):
    install(site, "foreign-models", module, {"foreign": what})
    with pytest.raises(PluginError, match=r"package foreign-models 0\.3: ") as caught:
        from_huggingface(CONFIG)
    assert "\n" not in str(caught.value)


def test_what_a_package_says_of_a_configuration_is_passed_on(site):
    install(site, "foreign-models", READ, {"foreign": "picky"})
    with pytest.raises(InvalidValueError, match="depth: "):
        from_huggingface(CONFIG)


def test_two_packages_with_one_name_are_refused(site):
    for name in ("foreign-one", "foreign-two"):
        install(site, name, READ, {"foreign": "FAMILY"})
    with pytest.raises(
        PluginError, match=r"'foreign' is brought by foreign-one 0\.3 and foreign-two 0\.3, one needed"
    ):
        from_huggingface(CONFIG)


def test_a_family_of_a_package_s_text_is_read_too(site):
    install(site, "foreign-models", READ, {"foreign": "FAMILY"})
    architecture = from_huggingface({"model_type": "seeing", "text_config": CONFIG}, "mine")
    assert (architecture.depth, architecture.name) == (3, "mine")
    assert type(architecture.layers[0].mask) is posbias.Chunked
