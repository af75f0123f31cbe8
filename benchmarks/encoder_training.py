"""How much of an encoder should learn: nothing, its last layers, or all of it.

Every setting is preset encoder-frozen with another training of the encoder, on the same
texts. Without `--test`, settings are judged on dev texts alone, a quarter of the
training texts. With `--test`, the setting with the best mean dev score over the corpora
and frozen are trained again as the preset has it and tested. One JSON line per run; a
run that the file already has is not done again.

    python benchmarks/encoder_training.py --corpora trec cr --out learning.jsonl
    python benchmarks/encoder_training.py --corpora trec cr --out learning.jsonl --test
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from textcapsules.config import RunConfig, preset
from textcapsules.data.load import load_corpus
from textcapsules.inference.evaluate import evaluate
from textcapsules.training.run import train

FROZEN: dict[str, Any] = {"encoder_training": "frozen"}
SETTINGS: list[dict[str, Any]] = [
    FROZEN,
    *(
        {"encoder_training": "light", "encoder_layers": layers, "encoder_rate": rate}
        for layers in (1, 2, 3)
        for rate in (1e-4, 3e-4)
    ),
    {"encoder_training": "tuned", "encoder_rate": 5e-5},
]
DEV_FRACTION = 0.25  # of the training texts, where dev alone judges


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpora", nargs="+", default=["trec", "cr"])
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--data-dir")
    parser.add_argument("--folds", nargs="+", type=int, default=[0], help="with --test")
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    base = preset("encoder-frozen").replace(
        data={"data_dir": asked.data_dir}, text={"encoder": asked.encoder}
    )
    scores = [
        [run(base, corpus, setting, asked.out)["dev_score"] for setting in SETTINGS]
        for corpus in asked.corpora
    ]
    if asked.test:
        chosen = SETTINGS[int(np.mean(scores, axis=0).argmax())]
        for corpus in asked.corpora:
            for fold in asked.folds:
                for setting in (FROZEN, chosen):
                    run(base, corpus, setting, asked.out, fold=fold, test=True)


def run(
    base: RunConfig,
    corpus: str,
    setting: dict[str, Any],
    out: Path,
    *,
    fold: int = 0,
    test: bool = False,
) -> dict[str, Any]:
    """Train with one setting, unless the file has it, and return its record."""
    wanted = {
        "corpus": corpus,
        "encoder": Path(str(base.text.encoder)).name,
        "setting": setting,
        "fold": fold,
        "tested": test,
    }
    lines = out.read_text().splitlines() if out.exists() else []
    for record in map(json.loads, lines):
        if all(record.get(key) == value for key, value in wanted.items()):
            return record
    fraction = {} if test else {"dev_fraction": DEV_FRACTION}
    config = base.replace(
        data={"source": corpus, "fold": fold, **fraction}, train=setting
    )
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        classifier = train(config, Path(folder) / "model", test_reasons=False)
    figures = classifier.record
    best = figures["epochs"][figures["best_epoch"] - 1]
    record = {
        **wanted,
        "dev_texts": figures["texts"]["dev"],
        "best_epoch": figures["best_epoch"],
        "dev_score": best["dev_score"],
        "dev_scores": [epoch["dev_score"] for epoch in figures["epochs"]],
    }
    if test:
        judged = evaluate(classifier, load_corpus(config.data).test)
        record["test"] = {
            "texts": judged.texts,
            "accuracy": (judged.single_label or {}).get("accuracy"),
            "exact_match": judged.multi_label["exact_match"],
        }
    record["cpu_seconds"] = round(time.process_time() - started, 1)
    with out.open("a") as file:
        file.write(json.dumps(record) + "\n")
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()
    return record


if __name__ == "__main__":
    main()
