"""Prints one table at the end of `make bench`: medians in this run, and what they are in ratio."""

import math
import sys


def pytest_terminal_summary(terminalreporter, config):
    _accuracy(terminalreporter)
    _frames(terminalreporter.write_line)
    session = getattr(config, "_benchmarksession", None)
    if session is None or not session.benchmarks:
        return
    medians = {bench.name.removeprefix("test_"): bench.stats.median for bench in session.benchmarks}
    write = terminalreporter.write_line
    terminalreporter.section(
        "medians of this run, and ratios (sweep: 70 layers × 112 heads; window, by distance: 32 × 32)"
    )
    write(f"{'':32}{'median':>12}  ratio")
    for name, seconds in medians.items():
        write(f"{name:32}{seconds:>10.4f} s  {_ratio(name, medians)}")
    _per_sample(session, write)
    _per_iteration(session, write)
    _measurements(write)
    few, many = medians.get("sweep_one_core[4096]"), medians.get("sweep_one_core[1000000]")
    if few and many:
        exponent = math.log(many / few) / math.log(1_000_000 / 4096)
        write(f"growth from 4,096 to 1,000,000 tokens: time ∝ tokens^{exponent:.2f}")


def _frames(write) -> None:
    """Frames a second of the explorer's page at 32 layers × 32 heads, and its error against the engines."""
    module = sys.modules.get("test_explore")
    for tokens, found in (module.RESULTS if module else {}).items():
        write(
            f"explore {tokens:>6} tokens{found['rate']:>8.1f} frames/s, {found['busy']:.1f} ms of script in each, "
            f"largest relative error {found['error']:.1e}, page of {found['bytes']:,.0f} bytes"
        )


def _measurements(write) -> None:
    """Seconds of one thread and peak memory, weights included, of measuring a prompt of SmolLM2-135M."""
    module = sys.modules.get("test_measurement")
    for (what, tokens), found in (module.RESULTS if module else {}).items():
        write(f"{what:20}{tokens:>6} tokens{found['seconds']:>9.1f} s{found['bytes'] / 1e9:>7.2f} GB")


def _per_sample(session, write) -> None:
    """What a sample of the LayerNorm simulation takes, and the ratio to torch's best in the same run."""
    cost = {
        bench.name.removeprefix("test_recency_"): bench.stats.median / bench.extra_info["samples"]
        for bench in session.benchmarks
        if "samples" in bench.extra_info
    }
    for name, seconds in cost.items():
        ratios = [
            f"{cost[torch] / seconds:.4g} × as fast as torch ({kind})"
            for kind in ("same", "bare")
            if (torch := f"torch[{kind}-{name.partition('[')[2]}") in cost and name.startswith("one_core")
        ]
        write(f"recency, {name:23}{seconds * 1e6:>8.2f} µs per sample  {', '.join(ratios)}")


def _per_iteration(session, write) -> None:
    """Iterations × members per second of training, and the ratio to the plain loop and to one member alone."""
    rate = {
        bench.name.removeprefix("test_training_"): bench.extra_info["member_iterations"] / bench.stats.median
        for bench in session.benchmarks
        if "member_iterations" in bench.extra_info
    }
    for name, speed in rate.items():
        kind, _, case = name.rstrip("]").partition("[")
        network, _, members = case.rpartition("-")
        against = [] if kind == "plain" else [(f"plain[{network}]", "the plain loop")]
        if members == "5":
            against.append((f"ensemble[{network}-1]", "one alone"))
        ratios = [
            f"{speed / rate[other]:.4g} × as fast as {said}" for other, said in against if other in rate
        ]
        write(f"training, {name:22}{speed:>8.1f} member-iterations/s  {', '.join(ratios)}")


def _accuracy(terminalreporter) -> None:
    module = sys.modules.get("test_accuracy")
    if module is None or not module.WORST:
        return
    terminalreporter.section("accuracy: each engine against the dense product, entries above 1e-250")
    line = terminalreporter.write_line
    line(f"{'':28}{'worst relative':>16}{'smallest entry':>16}{'entries':>10}{'architectures':>15}")
    for case, (worst, least, entries, drawn) in module.WORST.items():
        line(f"{case:28}{worst:>16.1e}{least:>16.1e}{entries:>10,}{drawn:>15}")


def _ratio(name: str, medians: dict[str, float]) -> str:
    kind, _, tokens = name.rstrip("]").partition("[")
    encoding = tokens.partition("-")[0]
    against = {
        "by_distance": (f"dense_by_distance[{encoding}]", "the dense algorithm"),
        "window": (f"window_dense[{tokens}]", "the dense algorithm"),
        "sweep_one_core": (f"dense[{tokens}]", "the dense algorithm"),
        "sweep_uniform_one_core": (f"dense[{tokens}]", "the dense algorithm"),
        "influence_content": ("sweep_one_core[256]", "its sweep with plan"),
        "sweep_two_cores": (f"sweep_one_core[{tokens}]", "one core"),
    }.get(kind)
    if name == "denormals[to_denormals]":
        against = ("denormals[mild]", "a decay without denormals")
    if against is None or against[0] not in medians:
        return ""
    return f"{medians[against[0]] / medians[name]:.4g} × as fast as {against[1]}"
