"""Predict with an exported model: onnxruntime, tokenizers and numpy, nothing else.

textcapsules export runs/demo/model --format onnx --out exported
python examples/onnx_predict.py exported "I was charged twice and cannot log in"
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


def predict(folder: Path, texts: list[str]) -> list[list[str]]:
    """Return the labels of each text, strongest first; none where no word is known."""
    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    about = json.loads((folder / "labels.json").read_text(encoding="utf-8"))
    names = [label["name"] for label in about["labels"]]
    least = np.array([label["threshold"] for label in about["labels"]], np.float32)

    # The tokenizer cuts texts at the model's length and pads the shorter ones.
    ids = np.array([each.ids for each in tokenizer.encode_batch(texts)], np.int64)
    scores = np.asarray(session.run(["scores"], {"ids": ids})[0])  # (texts, labels)

    if about["task"] == "multi-label":
        chosen = scores >= least
    else:
        chosen = scores.argmax(1)[:, None] == np.arange(len(names))
    chosen &= (scores > 0).any(1, keepdims=True)
    return [
        [names[j] for j in np.argsort(-row, kind="stable") if picked[j]]
        for row, picked in zip(scores, chosen, strict=True)
    ]


if __name__ == "__main__":
    _, folder, *texts = sys.argv
    for text, labels in zip(texts, predict(Path(folder), texts), strict=True):
        sys.stdout.write(json.dumps({"text": text, "predicted": labels}) + "\n")
