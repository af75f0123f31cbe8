"""Predict with an exported model: onnxruntime, tokenizers and numpy, nothing else.

textcapsules export runs/demo/model --format onnx --out exported
python examples/onnx_predict.py exported "I was charged twice and cannot log in"
"""

import json
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

MOST_PLACES = 2048  # of a batch; the sentences of a batch are padded to the longest


def predict(folder: Path, texts: list[str]) -> list[list[str]]:
    """Return the labels of each text, strongest first.

    A text has none if no word is known, or if it lies outside the training topics.
    """
    about = json.loads((folder / "labels.json").read_text(encoding="utf-8"))
    names = [label["name"] for label in about["labels"]]
    least = np.array([label["threshold"] for label in about["labels"]], np.float32)
    scores, outside = score(folder, about, texts)

    if about["task"] == "multi-label":
        chosen = scores >= least
    else:
        chosen = scores.argmax(1)[:, None] == np.arange(len(names))
    chosen &= (scores > 0).any(1, keepdims=True) & ~outside[:, None]
    return [
        [names[j] for j in np.argsort(-row, kind="stable") if picked[j]]
        for row, picked in zip(scores, chosen, strict=True)
    ]


def score(folder: Path, about: dict, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores (texts, labels), and which texts are outside the topics."""
    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    if "reading" in about:  # a model on a pretrained encoder
        tokenizer.encode_special_tokens = True  # a text that says "[SEP]" means letters
        rows = [piece_numbers(tokenizer, text, about) for text in texts]
        first = 2 + about["reading"]["pieces"]  # numbers from here on begin a sentence
    else:  # the tokenizer cuts texts at the model's length
        rows, first = [tokenizer.encode(text).ids for text in texts], None
    scores = np.zeros((len(texts), len(about["labels"])), np.float32)
    outside = np.zeros(len(texts), bool)
    for places in batches(rows, first):
        ids = np.zeros(
            (len(places), max(len(rows[place]) for place in places)), np.int64
        )
        for number, place in enumerate(places):
            ids[number, : len(rows[place])] = rows[place]
        found = [np.asarray(each) for each in session.run(None, {"ids": ids})]
        scores[places] = found[0]
        if len(found) > 1:  # a model that learnt from few texts refuses none
            outside[places] = found[1]
    return scores, outside


def batches(rows: list[list[int]], first: int | None) -> Iterator[list[int]]:
    """Yield which texts to score together: such as have sentences of like length."""
    lengths = []  # of each text's sentences; a model on words reads a text as one
    for row in rows:
        starts = [at for at, number in enumerate(row) if first and number >= first]
        ends = [*starts, len(row)] if starts else [0, len(row)]
        lengths.append([end - start for start, end in pairwise(ends)])
    batch, n_sentences = [], 0
    for place in sorted(range(len(rows)), key=lambda place: max(lengths[place])):
        n_more = n_sentences + len(lengths[place])
        if batch and n_more * max(lengths[place]) > MOST_PLACES:
            yield batch
            batch, n_more = [], len(lengths[place])
        batch.append(place)
        n_sentences = n_more
    if batch:
        yield batch


def piece_numbers(tokenizer: Tokenizer, text: str, about: dict) -> list[int]:
    """Return the numbers of a text's word pieces.

    Piece p has the number 2 + p, or 2 + p + `pieces` where a sentence begins: the
    model encodes each sentence by itself. An unknown piece has the number 1.
    """
    how, row = about["reading"], []
    for sentence in cut(text, how):
        n_known = 0
        for piece in tokenizer.encode(sentence, add_special_tokens=False).ids:
            if piece == how["unknown_piece"]:
                row.append(1)
                continue
            # Where texts are read as a whole, nothing says where a sentence begins.
            begins = how["stop"] is not None and n_known % how["max_pieces"] == 0
            row.append(2 + piece + begins * how["pieces"])
            n_known += 1
    return row[: about["max_tokens"]]


def cut(text: str, how: dict) -> list[str]:
    """Return what the model reads at once: sentences, clauses, or the whole text."""
    if how["stop"] is None:
        return [text.strip()] if text.strip() else []
    parts, start = [], 0
    for match in re.finditer(how["stop"], text):
        if match[1] == "." and ends_abbreviation(text[start : match.start()], how):
            continue
        parts.append(text[start : match.end()].strip())
        start = match.end()
    parts.append(text[start:].strip())
    sentences = [part for part in parts if part]
    if how["link"] is None:
        return sentences
    return [clause for part in sentences for clause in cut_clauses(part, how)]


def ends_abbreviation(text: str, how: dict) -> bool:
    """Tell whether the last word of a text is one that a full stop belongs to."""
    word = re.search(r"[\w.]+$", text[-20:])
    if word is None:
        return False
    letters = word[0].lower()
    is_initial = len(letters) == 1 and letters.isalpha() and letters != "i"
    return is_initial or letters in how["abbreviations"]


def cut_clauses(sentence: str, how: dict) -> list[str]:
    """Cut a sentence before words that link clauses, if both sides have words enough.

    The word that links is none of the second clause's own.
    """
    clauses, start = [], 0
    for match in re.finditer(how["link"], sentence, re.IGNORECASE):
        before, after = sentence[start : match.start()], sentence[match.end() :]
        if (
            len(before.split()) >= how["clause_words"]
            and len(after.split()) > how["clause_words"]
        ):
            clauses.append(sentence[start : match.end()].strip())
            start = match.end()
    return [*clauses, sentence[start:].strip()]


if __name__ == "__main__":
    _, folder, *texts = sys.argv
    for text, labels in zip(texts, predict(Path(folder), texts), strict=True):
        sys.stdout.write(json.dumps({"text": text, "predicted": labels}) + "\n")
