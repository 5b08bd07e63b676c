"""The page of configurations of 2026 is what the command says of them now."""

import sys

import pytest
from project import ROOT


@pytest.mark.slow
def test_the_page_is_what_predict_says_of_twelve_default_configurations(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import configurations

    assert len(configurations.FAMILIES) == 12
    assert configurations.page() == configurations.PAGE.read_text()
    del sys.modules["configurations"]
