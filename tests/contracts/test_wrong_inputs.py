"""A wrong input of each command is one line and exit status 2; a truncated file of each kind is named."""

from pathlib import Path

import numpy as np
import pytest
from command import called

import posbias
from posbias.core.errors import PosbiasError

COMMANDS = {
    "predict": ("predict bloom-560m --tokens 0", "tokens"),
    "predict, a file": ("predict nowhere.toml", "nowhere.toml"),
    "predict, a key": ("predict typo.toml", "did you mean 'depth'"),
    "measure": ("measure tiny-alibi --tokens 1", "tokens"),
    "retrieve": ("retrieve tiny-alibi --positions 1", "positions"),
    "compare": ("compare nowhere.json nowhere.json", "nowhere.json"),
    "report": ("report columns.csv", "--columns place=COLUMN"),
    "order": ("order nowhere.jsonl --profile smollm2-135m", "nowhere.jsonl"),
    "design": ("design bloom-560m --vary depht=2,4", "did you mean 'depth'"),
    "explore": ("explore nowhere --no-open", "nowhere"),
    "simulate": ("simulate layernorm --alpha 1", "anisotropy"),
    "train": ("train --labels 5000 --classes 10", "labels"),
    "study": ("study run typo.toml", "typo.toml"),
    "paper": ("paper kim2026 fig9", "did you mean 'fig"),
    "verify": ("verify wu-4.55", "did you mean 'wu-4.5'"),
    "cite": ("cite wu2024", "did you mean 'wu2025'"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("typo.toml").write_text("dept = 3\n")
    Path("columns.csv").write_text("a,b\n1,2\n")
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_input_is_one_line_with_exit_status_2(command):
    words, named = COMMANDS[command]
    done = called(*words.split())
    assert done.returncode == 2
    assert not done.stdout
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("posbias: ")
    assert named in line
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("suffix", [".nc", ".json", ".safetensors", ".toml", ".yaml", ".npz", ".csv"])
def test_a_truncated_file_is_named(suffix):
    path = Path(f"file{suffix}")
    if suffix == ".nc":
        posbias.save_measurement(posbias.measure("tiny-alibi", tokens=16, prompts=1), path)
    elif suffix == ".npz":
        np.savez(path, attention=np.ones((1, 1, 4, 4)))
    else:
        texts = {".json": '{"profile": [0.5, 0.5]}', ".toml": "depth = [3]", ".yaml": "depth: {a: 3}"}
        path.write_text(texts.get(suffix, '"position","correct"\n0,1\n"1'))
    path.write_bytes(path.read_bytes()[: -max(2, path.stat().st_size // 3)])
    read = posbias.load_architecture if suffix in (".toml", ".yaml") else posbias.read
    with pytest.raises(PosbiasError) as caught:
        read(path)
    assert path.name in str(caught.value)
    assert "\n" not in str(caught.value)
