"""What a device does with an ensemble: member-iterations a second, and whether it computes what a CPU does.

    python tools/device/step_rates.py --device cuda --depths 2,4,6,8,10 --members 100,240,400 --out rates.json

For every depth, number of members and precision, with and without a CUDA graph: 200 steps after 20. Then a small
ensemble is trained for 100 steps there and on the CPU: data must be equal to the bit, the largest difference of
weights is reported. The file is written anew after every entry: a run that is cut off leaves what it has. On a CPU
it is a rehearsal: `--device cpu --members 3 --steps 5`.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch

from posbias.core.files import write_text
from posbias.training.experiments import Experiment
from posbias.training.loop import Ensemble, Precision, multiplying, precisions
from posbias.training.network import Network
from posbias.training.task import Feed, RetrievalTask

WARM, SMALL = 20, RetrievalTask(items=4, dimension=16, classes=64, labels=4, burstiness=2)


def rate(depth: int, members: int, precision: Precision, graph: bool, device: str, steps: int) -> dict:
    """Member-iterations a second of one ensemble of the paper's size."""
    seeds = tuple(range(members))
    experiment = Experiment(network=Network(depth), seeds=seeds, iterations=10**6, precision=precision)
    with multiplying(experiment.precision, device):
        ensemble = Ensemble([experiment], device, graph=graph)
        for _ in range(min(WARM, steps)):
            ensemble.step()
        _wait(device)
        begin = time.perf_counter()
        for _ in range(steps):
            ensemble.step()
        _wait(device)
        seconds = time.perf_counter() - begin
    about = {"depth": depth, "members": members, "precision": precision, "graph": graph, "steps": steps}
    return about | {"seconds": seconds, "member_iterations_per_second": members * steps / seconds}


def agreement(device: str) -> dict:
    """Data and weights of a small ensemble, there and on the CPU."""
    here, there = (Feed([SMALL] * 3, range(3), 32, one) for one in ("cpu", device))
    equal = all(
        torch.equal(a, b.cpu())
        for iteration in (0, 7, 2**40)
        for a, b in zip(here.batch(iteration), there.batch(iteration), strict=True)
    )
    weights = []
    for one in ("cpu", device):
        ensemble = Ensemble([Experiment(SMALL, Network(2), (0, 1, 2), iterations=100, batch=32)], one)
        for _ in range(100):
            ensemble.step()
        _wait(one)
        weights.append(ensemble.trained(slice(0, 3)))
    largest = max(float((weights[0][name] - weights[1][name].cpu()).abs().max()) for name in weights[0])
    return {"data_equal": equal, "largest_weight_difference": largest}


def _wait(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    """Measure, and write after every entry."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--depths", default="2,4,6,8,10")
    parser.add_argument("--members", default="100,240,400")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("rates.json"))
    asked = parser.parse_args()
    cuda = torch.device(asked.device).type == "cuda"
    name = torch.cuda.get_device_name(asked.device) if cuda else "cpu"
    report = {"device": name, "torch": torch.__version__, "agreement": agreement(asked.device), "rates": []}
    for depth in map(int, asked.depths.split(",")):
        for members in map(int, asked.members.split(",")):
            for precision in precisions(asked.device):
                for graph in (True, False) if cuda else (False,):
                    entry = rate(depth, members, precision, graph, asked.device, asked.steps)
                    report["rates"].append(entry)
                    write_text(asked.out, json.dumps(report, indent=1) + "\n")
                    print(entry, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
