"""`posbias paper`: the three papers' figures, tables and statements."""

from cyclopts import App

paper = App(
    name="paper", help="Draw a paper's figures again, and check what it states.", help_format="plaintext"
)
COMMANDS = {
    "claims": ("all_", "list_", "claims"),
    "ours": ("extensions", "variants"),
    "reproduce": ("herasimchyk2026", "kim2026", "wu2025"),
}
"""The functions of each module that are commands."""
for module, names in COMMANDS.items():
    for name in names:
        paper.command(f"posbias_papers.cli.{module}:{name}", name=name.rstrip("_"))
