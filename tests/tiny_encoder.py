"""Small encoders with random weights, in folders such as the Hugging Face hub has."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel

__all__ = ["KINDS", "write_encoder"]

WORDS = [
    "the",
    "a",
    "my",
    "you",
    "it",
    "is",
    "not",
    "and",
    "cat",
    "dog",
    "purr",
    "bark",
    "meow",
    "growl",
    "feed",
    "walk",
    "fur",
    "tail",
    "paw",
    "app",
    "crash",
    "##es",
    "##ing",
    "##s",
    "card",
    "charge",
    "##d",
    "twice",
    "hello",
    ".",
    ",",
    "!",
    "?",
    "$",
]
SPECIAL = {
    "bert": ("[PAD]", "[UNK]", "[CLS]", "[SEP]"),
    "roberta": ("<s>", "<pad>", "</s>", "<unk>"),
    "mpnet": ("<s>", "<pad>", "</s>", "<unk>"),
    "xlm-roberta": ("<s>", "<pad>", "</s>", "<unk>"),
    "deberta-v2": ("<s>", "<pad>", "</s>", "<unk>"),
    "modernbert": ("<s>", "<pad>", "</s>", "<unk>"),
}
KINDS = tuple(SPECIAL)


def write_encoder(folder: Path, kind: str = "bert", *, seed: int = 0) -> Path:
    """Write an encoder of a kind with 16 numbers per state, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    special = SPECIAL[kind]
    letters = [chr(n) for n in range(ord("a"), ord("z") + 1)]
    pieces = dict.fromkeys([*special, *WORDS, *letters, *(f"##{x}" for x in letters)])
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    unknown, first, last = (
        ("[UNK]", "[CLS]", "[SEP]") if kind == "bert" else ("<unk>", "<s>", "</s>")
    )
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer()  # type: ignore[assignment]
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]
    tokenizer.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single=f"{first} $A {last}",
        special_tokens=[(name, vocabulary[name]) for name in (first, last)],
    )
    tokenizer.add_special_tokens(list(special))
    tokenizer.enable_truncation(8)  # as published files have; it must not matter
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(seed)
    config = AutoConfig.for_model(
        kind,
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        pad_token_id=vocabulary["[PAD]" if kind == "bert" else "<pad>"],
    )
    AutoModel.from_config(config).save_pretrained(folder, safe_serialization=True)
    return folder
