"""Fixtures: an empty folder for each test, a command's answer in JSON."""

import json

import pytest
from answers import faults
from command import called


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Each test works in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def answered(folder):
    """`answered("predict", "bloom-560m")`: what the command prints with --json, which is as its schema says."""

    def run(*words):
        done = called(*words, "--json", cwd=folder)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert not faults(answer)
        return answer

    return run
