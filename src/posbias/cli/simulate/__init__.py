"""`posbias simulate`: layernorm and variants."""

from cyclopts import App

simulate = App(name="simulate", help="Simulate position bias in controlled cases.", help_format="plaintext")
for name in ("layernorm", "variants"):
    simulate.command(f"posbias.cli.simulate.{name}:{name}", name=name)
