"""The figures, tables and printed numbers of the papers, drawn again: one module per paper.

    from posbias_papers.reproduction import reproduce

    reproduce("kim2026", "fig1", out="results/kim2026")

A paper's package has `STUDIES` (`study`), by name, and `tables`, which computes what they show.
"""

from pathlib import Path

__all__ = ["MODELS", "PAPERS"]
__version__ = "0.3.0"

MODELS = Path(__file__).with_name("models")
"""Small decoders of our own, a folder each: `tiny-alibi` and its like, where this package is installed."""

PAPERS = ("wu2025", "herasimchyk2026", "kim2026")
"""The papers, by citation key, in the order of all lists."""
