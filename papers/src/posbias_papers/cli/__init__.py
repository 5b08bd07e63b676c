"""`posbias paper`: the three papers' figures, tables and statements."""

from cyclopts import App

paper = App(
    name="paper", help="Draw a paper's figures again, and check what it states.", help_format="plaintext"
)
for name in ("all", "list"):
    paper.command(f"posbias_papers.cli.{name}:{name}_", name=name)
for name in ("claims", "encodings", "extensions", "herasimchyk2026", "kim2026", "wu2025"):
    paper.command(f"posbias_papers.cli.{name}:{name}", name=name)
paper.command("posbias_papers.cli.variants:variants", name="variants")
