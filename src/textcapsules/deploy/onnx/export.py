"""Export a model to ONNX: three files that need nothing of this package.

`model.onnx` maps word numbers to scores, and says which texts lie outside the topics;
`tokenizer.json`, read by `tokenizers`, makes the numbers, cuts long texts and pads
short ones; `labels.json` names the classes and their thresholds. Before any of them is
written, random texts go through the three files and through the original model, and
must get the same scores.

Of a model on a pretrained encoder, `labels.json` also says how texts become numbers
(`reading`): where they are cut into sentences, and what a piece's number is. The
program that reads the files does that; `examples/onnx_predict.py` is one.
"""

import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from textcapsules.base.errors import (
    ModelFolderError,
    TextCapsulesError,
    WriteError,
    warn,
)
from textcapsules.base.files import write_bytes, write_text
from textcapsules.deploy.onnx.encoder import float_states
from textcapsules.deploy.onnx.graph import IR_VERSION, OPSET
from textcapsules.deploy.onnx.network import network_graph
from textcapsules.model.classifier import TextClassifier, encoder_of
from textcapsules.text.encode import spelling_options
from textcapsules.text.encoder import EncoderEmbedding, multiplies_bfloat16
from textcapsules.text.pieces import (
    ABBREVIATIONS,
    CLAUSE_WORDS,
    LINK,
    STOP,
    PieceTokenizer,
    clause_places,
    split_sentences,
)
from textcapsules.text.vocabulary import PAD, PAD_ID

__all__ = ["FILES", "TOLERANCE", "Exported", "export_onnx", "random_texts"]

FILES = ("tokenizer.json", "labels.json", "model.onnx")
TOLERANCE = 1e-4
# Words beside a network read the logit of its score, which magnifies a difference near
# 0 and 1.
TOLERANCE_WITH_WORDS = 1e-3
N_TEXTS = 200
MOST_PLACES = 2048  # of a batch of random texts


class Exported(NamedTuple):
    """The three files' content, not yet written."""

    tokenizer: str
    labels: str
    model: bytes


def export_onnx(
    classifier: TextClassifier,
    folder: Path | str,
    *,
    overwrite: bool = False,
    n_texts: int | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Write a model to `folder` for onnxruntime; return its facts and the comparison.

    Args:
        classifier: a trained capsule network.
        folder: where the three files go.
        overwrite: replace those files if they are there.
        n_texts: random texts on which both must agree to `TOLERANCE`, or to
            `TOLERANCE_WITH_WORDS`; by default 200, or 50 for an encoder, which reads
            longer.
        seed: of the random texts.
    """
    folder = Path(folder)
    check_target(folder, overwrite)
    exported = build(classifier)
    if n_texts is None:
        n_texts = N_TEXTS if encoder_of(classifier.network) is None else N_TEXTS // 4
    texts = random_texts(classifier, n_texts, seed)
    scores, outside = run_files(exported, texts)
    with in_float32(classifier):
        expected = classifier.read(texts)
    difference = largest_difference(scores, expected.scores)
    most = TOLERANCE_WITH_WORDS if classifier.uses_word_scores else TOLERANCE
    if not difference <= most:  # NaN is refused too
        raise TextCapsulesError(
            f"exported scores must be within {most} of the model's; got a "
            f"difference of {difference:.2g}. Nothing was written."
        )
    if (outside != expected.outside).any():
        raise TextCapsulesError(
            "exported files must refuse the texts that the model refuses; got others. "
            "Nothing was written."
        )
    facts = {}
    if encoder_of(classifier.network) is not None and multiplies_bfloat16():
        here = largest_difference(scores, classifier.scores(texts))
        facts["largest_difference_bfloat16"] = here
    write_text(folder / "tokenizer.json", exported.tokenizer)
    write_text(folder / "labels.json", exported.labels)
    write_bytes(folder / "model.onnx", exported.model)  # last: then all is there
    return {
        "folder": str(folder),
        "files": list(FILES),
        "bytes": len(exported.model),
        "opset": OPSET,
        "ir_version": IR_VERSION,
        "texts_compared": len(texts),
        "largest_difference": difference,
        **facts,
    }


def check_target(folder: Path, overwrite: bool) -> None:
    """Leave existing files alone unless told otherwise."""
    if folder.exists() and not folder.is_dir():
        raise WriteError(f"{folder} must be a folder; got a file. Name another.")
    if (folder / "model.safetensors").exists():
        raise WriteError(
            f"{folder} must not be a model folder, whose files would be replaced; "
            "got one. Name another folder."
        )
    existing = [name for name in FILES if (folder / name).exists()]
    if existing and not overwrite:
        raise WriteError(
            f"{folder} must not hold an export yet; got {', '.join(existing)}. Name "
            "another folder, or pass --overwrite."
        )


def build(classifier: TextClassifier) -> Exported:
    """Return the content of the three files."""
    limit, labels = classifier.config.text.max_tokens, classifier.labels
    rows = [
        {"name": name, "threshold": threshold}
        for name, threshold in zip(labels.names, labels.thresholds, strict=True)
    ]
    about = {"task": labels.task, "max_tokens": limit, "labels": rows}
    if isinstance(classifier.tokenizer, PieceTokenizer):
        about["reading"] = reading(classifier.tokenizer)
    described = json.dumps(about, indent=2, ensure_ascii=False) + "\n"
    facts = {key: json.dumps(value) for key, value in about.items()}
    drop = classifier.config.text.unknown != "keep"
    if spelling_options(classifier.config, classifier.tokenizer):
        warn(
            "the exported model drops misspelt words, which the model itself reads as "
            "the words that are meant (--unknown nearest)."
        )
    model = network_graph(
        classifier.network, limit, facts, drop_unknown=drop, rule=classifier.rule
    )
    return Exported(tokenizer_json(classifier), described, model.SerializeToString())


def reading(tokenizer: PieceTokenizer) -> dict[str, Any]:
    """Return how texts become documents of word pieces, for programs in any language.

    See `text.pieces`: what ends a sentence, what links clauses, and how rows are made.
    """
    by_clauses = tokenizer.places is clause_places
    return {
        "stop": None if tokenizer.reads_whole else STOP.pattern,  # nothing is cut
        "abbreviations": sorted(ABBREVIATIONS),
        "link": LINK.pattern if by_clauses else None,
        "clause_words": CLAUSE_WORDS,
        "pieces": tokenizer.n_pieces,
        "unknown_piece": tokenizer.unknown_piece(),
        "max_pieces": tokenizer.max_pieces,
    }


def tokenizer_json(classifier: TextClassifier) -> str:
    """Return the model's tokenizer; of words, it also cuts long texts and pads.

    Word pieces are cut and padded after the sentences of a text are joined.
    """
    with tempfile.TemporaryDirectory() as folder:
        classifier.tokenizer.save(Path(folder) / "tokenizer.json")
        tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    if isinstance(classifier.tokenizer, PieceTokenizer):
        tokenizer.no_truncation()
        tokenizer.no_padding()
    else:
        tokenizer.enable_truncation(classifier.config.text.max_tokens)
        tokenizer.enable_padding(pad_id=PAD_ID, pad_token=PAD)
    return tokenizer.to_str(pretty=True)


def random_texts(classifier: TextClassifier, n_texts: int, seed: int) -> list[str]:
    """Draw texts of the vocabulary's words, from none to more than are read.

    One word in ten is unknown; every tenth text has no known word at all.
    """
    random = np.random.default_rng(seed)
    words, limit = classifier.tokenizer.words[2:], classifier.config.text.max_tokens
    is_pieces = isinstance(classifier.tokenizer, PieceTokenizer)
    texts = ["", " \n", words[0], " ".join(words[:1] * (limit + 3))]
    while len(texts) < n_texts:
        # As many short texts as long ones: most mistakes happen with short texts.
        length = int(math.exp(random.uniform(0, math.log(limit + 10))))
        drawn = random.choice(words, length)
        unknown = random.random(length) < (1 if len(texts) % 10 == 0 else 0.1)
        chosen = np.where(unknown, "\u16a0nknown\u16a0", drawn)
        if is_pieces:  # sentences, and clauses
            ends = random.choice(["", ".", ", and"], length, p=[0.86, 0.08, 0.06])
            chosen = np.strings.add(chosen.astype(np.str_), ends)
        texts.append(" ".join(chosen))
    return texts


@contextmanager
def in_float32(classifier: TextClassifier) -> Iterator[None]:
    """Let a pretrained encoder compute its states as they are defined."""
    network: Any = classifier.network
    encoder = encoder_of(network)
    if encoder is None:
        yield
        return
    states = float_states(encoder.states)
    network.embedding = EncoderEmbedding(states, encoder.pieces)
    try:
        yield
    finally:
        network.embedding = encoder


def largest_difference(scores: Sequence[NDArray], expected: NDArray) -> float:
    """Return the largest difference between any of the scores and those expected."""
    return float(np.max([np.abs(each - expected).max() for each in scores]))


def run_files(
    exported: Exported, texts: Sequence[str]
) -> tuple[list[NDArray], NDArray[np.bool_]]:
    """Return the scores (N, J) of texts alone and in batches, and which are outside."""
    session = open_session(exported.model)
    documents, lengths = read_documents(exported, texts)
    names = [each.name for each in session.get_outputs()]
    scores, outside = [], np.zeros(len(texts), dtype=bool)
    for most in (1, MOST_PLACES):  # alone and together
        found = []
        for start, end in pairwise(batch_bounds(lengths, most)):
            part = documents[start:end]
            ids = np.zeros((len(part), max(map(len, part))), np.int64)
            for row, document in enumerate(part):
                ids[row, : len(document)] = document
            results = dict(zip(names, session.run(names, {"ids": ids}), strict=True))
            found.append(results["scores"])
            if "outside" in results:
                outside[start:end] = results["outside"]
        scores.append(np.concatenate(found))
    return scores, outside


def batch_bounds(lengths: Sequence[Sequence[int]], most: int) -> list[int]:
    """Return where batches begin and end, each of one text or of `most` places.

    So memory is bounded: all sentences of a batch are padded to the longest.

    Args:
        lengths: of each text's sentences.
        most: sentences of a batch, times the longest.

    >>> batch_bounds([[3], [5], [1, 2], [9]], 12)
    [0, 2, 3, 4]
    """
    bounds, n_sentences, longest = [0], 0, 0
    for place, sentences in enumerate(lengths):
        n_sentences, longest = n_sentences + len(sentences), max(longest, *sentences, 0)
        if place > bounds[-1] and n_sentences * longest > most:
            bounds.append(place)
            n_sentences, longest = len(sentences), max(*sentences, 0)
    return [*bounds, len(lengths)]


def read_documents(
    exported: Exported, texts: Sequence[str]
) -> tuple[list[NDArray], list[list[int]]]:
    """Return the numbers of each text, and the lengths of its sentences.

    They are made with the files alone. A text of words counts as one sentence.
    """
    about = json.loads(exported.labels)
    tokenizer = Tokenizer.from_str(exported.tokenizer)
    if (how := about.get("reading")) is None:
        tokenizer.no_padding()
        encoded = tokenizer.encode_batch(list(texts), add_special_tokens=False)
        documents = [np.array(each.ids, np.int64) for each in encoded]
        return documents, [[len(ids)] for ids in documents]
    by = "sentences" if how["link"] is None else "clauses"
    by = "texts" if how["stop"] is None else by
    pieces = PieceTokenizer(exported.tokenizer, max_pieces=how["max_pieces"], by=by)
    documents = [
        ids.astype(np.int64) for ids in pieces.encode(texts, about["max_tokens"])
    ]
    sentences = [split_sentences(ids, how["pieces"]) for ids in documents]
    return documents, [[len(each) for each in parts] for parts in sentences]


def open_session(model: bytes) -> Any:
    """Open a model in onnxruntime, an extra."""
    try:
        import onnxruntime
    except ImportError as error:
        raise TextCapsulesError(
            "onnxruntime must be installed to check an export; got none. "
            "Run `pip install 'textcapsules[onnx]'`."
        ) from error
    try:
        return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime has one class per kind of failure
        raise ModelFolderError(
            f"model must be readable by onnxruntime; got: {error}"
        ) from error
