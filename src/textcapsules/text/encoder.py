"""A pretrained encoder, and the states it gives to texts.

Any text encoder of the Hugging Face library (BERT, RoBERTa, MPNet, DeBERTa, ModernBERT,
XLM-R, ...) can stand under a network in place of word vectors. Where its files come
from is in `text.encoder_files`.

Here the encoder is frozen: its weights do not change. So the states of a sentence never
change either, and each sentence is encoded once (`SentenceStates`). How its weights can
learn with the network above is in `text.encoder_training`.

States are defined in float32. A CPU that multiplies bfloat16 natively computes the
products of the encoder's linear layers in it, 1.7 times as fast, and everything
between them in float32; the states then differ by about one hundredth of their length.
"""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    contextmanager,
    nullcontext,
    suppress,
)
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from textcapsules.base.errors import ConfigError, TextCapsulesError
from textcapsules.base.files import check_regular, write_bytes, write_tensors
from textcapsules.text.bert import Linear, PlainBert, reads_plainly
from textcapsules.text.encoder_files import (
    PACKAGES,
    SOURCE_FILE,
    EncoderSource,
    damaged,
    find_encoder,
    find_source,
    is_folder,
    read_json_file,
    read_source,
    read_weights,
    require_transformers,
    source_of,
)
from textcapsules.text.piece_vectors import PieceVectors
from textcapsules.text.pieces import PieceTokenizer, split_sentences
from textcapsules.text.state_store import StateStore

__all__ = [
    "ENCODER_FILES",
    "BfloatLinear",
    "EncoderEmbedding",
    "PretrainedEncoder",
    "SentenceStates",
    "batches",
    "build_model",
    "freeze",
    "join_states",
    "load_encoder",
    "move",
    "multiplies_bfloat16",
    "own_name",
    "read_encoder",
]

# In a model folder; the tokenizer lies beside them as tokenizer.json.
ENCODER_FILES = ("encoder.json", "encoder.safetensors")
BATCH_TOKENS = 2048  # pieces encoded together, padding included
GPU_TOKENS = 1 << 14  # and on a GPU, where a launch costs most
LENGTH_STEP = 8  # sentences of like length are encoded together
RESERVED = 8  # places: RoBERTa's positions begin at 2, and special tokens
STORED_PIECES = 1 << 16  # in a file of the store: 48 MiB for states of 384 numbers
FEWEST_STORED = 1 << 12  # pieces; fewer are encoded sooner than a file is kept
CACHED_NUMBERS = 1 << 30  # of states kept in training: 2 GiB, in half precision
SERVED_NUMBERS = 1 << 24  # and for predictions, where texts seldom come again: 32 MiB


class PretrainedEncoder(NamedTuple):
    """An encoder ready for use."""

    tokenizer: PieceTokenizer
    states: "SentenceStates"
    facts: dict[str, Any]  # its name, kind and checksum, for the record of a training


def load_encoder(name: str) -> PretrainedEncoder:
    """Return the encoder of a folder, an installed package or the hub, frozen.

    The last one stays in memory with the states of its sentences: a search that trains
    on the same texts again and again encodes them once.
    """
    require_transformers()
    folder = find_encoder(name)
    files = tuple(
        (path.name, path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(folder.iterdir())
    )
    return load_files(name, folder.resolve(), files)


@lru_cache(maxsize=1)
def load_files(name: str, folder: Path, files: tuple[Any, ...]) -> PretrainedEncoder:
    """Return the encoder of a folder; `files` tells when they have changed."""
    del files
    values = read_json_file(folder / "config.json")
    tensors, sums = read_weights(folder)
    tokenizer, states = assemble(folder, values, in_half(tensors, folder))
    states.source = source_of(name, folder, sums)
    facts = {
        "encoder": name if name in PACKAGES or not is_folder(name) else folder.name,
        "kind": values.get("model_type"),
        "sha256": sums,
        "weights": sum(value.numel() for value in tensors.values()),
    }
    if states.source.revision is not None:
        facts["revision"] = states.source.revision
    return PretrainedEncoder(tokenizer, states, facts)


def in_half(tensors: Mapping[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """Return weights as they are saved: trained and loaded models must agree."""
    halves = {key: value.half() for key, value in tensors.items()}
    for key, value in halves.items():
        if not value.isfinite().all():
            raise ConfigError(
                f"encoder must have weights that half precision can hold; got others "
                f"in {key!r} of {folder}. Name another encoder."
            )
    return halves


def read_encoder(
    folder: Path, *, embedded: bool = True
) -> tuple[PieceTokenizer, "SentenceStates"]:
    """Return the encoder of a model folder.

    Args:
        folder: of the model.
        embedded: whether the folder holds the encoder; else it says where to find it.
    """
    require_transformers()
    source = None if embedded else read_source(folder)
    if source is None:
        config, weights = (folder / name for name in ENCODER_FILES)
        values = read_json_file(config)
        try:
            check_regular(weights)
            tensors = load_file(weights)
        except (OSError, SafetensorError) as error:
            raise damaged(weights, error) from error
    else:
        place = find_source(source, folder)
        values = read_json_file(place / "config.json")
        tensors = in_half(read_weights(place)[0], place)
    tokenizer, states = assemble(folder, values, tensors)
    states.source, states.cached_numbers = source, SERVED_NUMBERS
    return tokenizer, states


def assemble(
    folder: Path, values: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> tuple[PieceTokenizer, "SentenceStates"]:
    """Return the tokenizer of a folder, and the encoder of these weights."""
    model = freeze(build_model(values, tensors, folder, plain=True))
    tokenizer = PieceTokenizer.load(
        folder / "tokenizer.json", max_pieces=longest_sentence(model)
    )
    return tokenizer, SentenceStates(model, tokenizer, values, tensors)


def build_model(
    values: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    folder: Path | str,
    *,
    plain: bool = False,  # without transformers, if its kind allows it: for reading
) -> Any:
    """Return the encoder of these weights in float32; errors name its folder."""
    kind = str(values.get("model_type"))
    if plain and reads_plainly(values):
        with suppress(ValueError, TypeError, RuntimeError):  # transformers says why
            return with_weights(PlainBert(values), tensors, kind, folder)
    from transformers import AutoConfig, AutoModel

    # `auto_map` names code on the hub, which is never fetched; weights become float32.
    left_out = {"model_type", "auto_map", "dtype", "torch_dtype"}
    settings = {key: value for key, value in values.items() if key not in left_out}
    try:
        config = AutoConfig.for_model(kind, **settings)
        with quiet(), undrawn():
            model = AutoModel.from_config(config, trust_remote_code=False)
    except (ValueError, KeyError, TypeError, ImportError) as error:
        raise ConfigError(
            f"encoder must be of a kind that the installed transformers knows; got "
            f"{kind!r} in {folder}. Update transformers, or name another encoder."
        ) from error
    return with_weights(model, tensors, kind, folder)


def with_weights(
    model: Any, tensors: Mapping[str, Tensor], kind: str, folder: Path | str
) -> Any:
    """Return a model with these weights, in float32."""
    own = {own_name(model, key): value.float() for key, value in tensors.items()}
    missing = set(model.state_dict()) - set(own)
    needed = {
        key for key in missing if "pooler" not in key and "position_ids" not in key
    }
    if needed:
        raise ConfigError(
            f"encoder must have all weights of a {kind}; got none for "
            f"{sorted(needed)[0]!r} and {len(needed) - 1} more in {folder}. Name "
            "another encoder."
        )
    for key, value in model.state_dict().items():
        if key in missing and "pooler" in key:
            value.zero_()  # nothing depends on it, but it is not to be arbitrary
    try:
        plain = isinstance(model, PlainBert)  # takes the weights as its own
        model.load_state_dict(own, strict=False, assign=plain)
    except RuntimeError as error:  # of other shapes
        raise ConfigError(
            f"encoder must have weights that fit its config.json; got others in "
            f"{folder}. Restore its files, or name another encoder."
        ) from error
    return model.float().eval()


def own_name(model: Any, key: str) -> str:
    """Return what a model calls the weight that a file has under this key."""
    return key.removeprefix(getattr(model, "base_model_prefix", "") + ".")


def freeze(model: Any) -> Any:
    """Take a model's gradients away, and use the CPU's products in bfloat16."""
    model.eval().requires_grad_(False)
    if multiplies_bfloat16():
        use_bfloat16(model)
    return model


def move(model: nn.Module, device: torch.device) -> None:
    """Put a model on a device, unless it is there: a look at all weights takes long."""
    if next(model.parameters()).device != device:
        model.to(device)


@cache
def multiplies_bfloat16() -> bool:
    """Tell whether this CPU has instructions for products in bfloat16."""
    asked = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    # Private names of torch: without them, products stay in float32.
    return any(getattr(torch.cpu, name, bool)() for name in asked)


class BfloatLinear(nn.Linear):
    """A linear layer with float32 in and out, whose product on a CPU is in bfloat16.

    It is for inference: its weights must not change.
    """

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        # No buffers: they are neither saved nor moved to a GPU.
        self.short = linear.weight.bfloat16()
        self.short_bias = None if linear.bias is None else linear.bias.bfloat16()

    def forward(self, input: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        if input.device.type != "cpu":
            return super().forward(input)
        return F.linear(input.bfloat16(), self.short, self.short_bias).float()


def use_bfloat16(model: nn.Module) -> None:
    """Replace the linear layers of a model, in place."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and type(child) in (nn.Linear, Linear):
                setattr(module, name, BfloatLinear(child))


def undrawn() -> AbstractContextManager[Any]:
    """Let a model be built without drawing weights, which are read from files."""
    try:
        from transformers.initialization import no_init_weights
    except ImportError:  # of another version: to draw a hundred million takes a second
        return nullcontext()
    return no_init_weights()


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the library's remarks on missing heads to itself."""
    from transformers.utils import logging as library

    level = library.get_verbosity()
    library.set_verbosity_error()
    try:
        yield
    finally:
        library.set_verbosity(level)


def longest_sentence(model: Any) -> int:
    """Return the pieces of a sentence that the encoder can read, special ones apart."""
    limit = getattr(model.config, "max_position_embeddings", None) or 512
    return min(limit, 512) - RESERVED


class SentenceStates:
    """Last hidden states of sentences, each encoded once and then remembered.

    It is no part of the network that stands on it: its weights are neither trained nor
    saved with the network's, but beside them (`save`).
    """

    def __init__(
        self,
        model: Any,  # one of transformers' own classes
        tokenizer: PieceTokenizer,
        settings: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
    ) -> None:
        self.model, self.settings, self.tensors = model, dict(settings), dict(tensors)
        self.tokenizer = tokenizer
        self.source: EncoderSource | None = None  # if it is found again by its name
        self.size: int = model.config.hidden_size
        self.cached_numbers, self.n_cached = CACHED_NUMBERS, 0
        self.forgets = True  # what was not asked for longest, for what is new
        self.lock = threading.Lock()  # a service may score in several threads
        self.cache: OrderedDict[bytes, Tensor] = OrderedDict()
        self.n_pieces, self.max_pieces = tokenizer.n_pieces, tokenizer.max_pieces
        self.before, self.after = tokenizer.special_pieces()
        self.unknown = tokenizer.unknown_piece() or 0
        self.padding: int = getattr(model.config, "pad_token_id", None) or 0
        self.longest = longest_sentence(model) + RESERVED  # special tokens included

    def save(self, folder: Path, *, embed: bool = True) -> None:
        """Write the encoder into a model folder, or only where it is found."""
        config, weights = (folder / name for name in ENCODER_FILES)
        if embed:
            (folder / SOURCE_FILE).unlink(missing_ok=True)
            write_bytes(config, (json.dumps(self.settings, indent=2) + "\n").encode())
            write_tensors(weights, self.tensors)
            return
        if self.source is None:
            raise TextCapsulesError(
                "embed_encoder must be true for an encoder that is in this model alone;"
                " got false. Choose --embed-encoder."
            )
        config.unlink(missing_ok=True)
        weights.unlink(missing_ok=True)
        self.source.save(folder)

    def checksum(self) -> str:
        """Return a checksum of all that decides the states of a sentence."""
        short = any(isinstance(part, BfloatLinear) for part in self.model.modules())
        how = (self.settings, self.before, self.after, self.unknown, short)
        digest = hashlib.sha256(json.dumps(how, sort_keys=True).encode())
        for name in sorted(self.tensors):
            digest.update(name.encode())
            digest.update(self.tensors[name].contiguous().cpu().numpy().tobytes())
        return digest.hexdigest()

    def sentences_of(
        self, documents: Iterable[NDArray]
    ) -> dict[bytes, NDArray[np.int64]]:
        """Return the distinct sentences of some documents."""
        found: dict[bytes, NDArray[np.int64]] = {}
        for document in documents:
            rows = np.asarray(document, np.int64)
            for pieces in split_sentences(rows, self.n_pieces, self.max_pieces):
                found.setdefault(pieces.tobytes(), pieces)
        found.pop(b"", None)  # of a document without words
        return found

    def make_room(
        self, sentences: Mapping[bytes, NDArray[np.int64]]
    ) -> dict[bytes, NDArray[np.int64]]:
        """Return the first unknown ones of some sentences, as many as can be kept.

        Others than those are forgotten if there is no room for all.
        """
        unknown = {k: sentences[k] for k in sentences if k not in self.cache}
        needed = self.size * sum(map(len, unknown.values()))
        if self.n_cached + needed > self.cached_numbers:
            for key in [key for key in self.cache if key not in sentences]:
                self.n_cached -= self.cache.pop(key).numel()
        room, fitting = self.cached_numbers - self.n_cached, {}
        for key, pieces in unknown.items():
            room -= self.size * len(pieces)
            if room < 0:
                break
            fitting[key] = pieces
        return fitting

    def encode_all(
        self,
        documents: Iterable[NDArray],
        device: torch.device,
        on_encode: Callable[[int, int], None] | None = None,
    ) -> None:
        """Encode and remember the sentences of documents, or read them from the disk.

        Together they are encoded faster than batch by batch, since sentences of the
        same length meet. From now on nothing is forgotten: where each epoch asks for
        more than can be kept, the state not asked for longest is the next to be used.

        Args:
            documents: rows of `PieceTokenizer`, without padding.
            device: where to encode.
            on_encode: called from time to time with the pieces done and those to do.
        """
        with self.lock:
            sentences = self.make_room(self.sentences_of(documents))
            self.forgets = False
            n_all = sum(map(len, sentences.values()))
            if n_all < FEWEST_STORED:
                self.remember(self.encode(sentences, device))
                return
            store = StateStore(self.checksum(), self.size)
            stored = store.read(sentences)
            self.remember(stored)
            n_done = sum(len(sentences[key]) for key in stored)
            fresh: dict[bytes, Tensor] = {}
            missing = {k: sentences[k] for k in sentences if k not in stored}
            for states in self.encode_batches(missing, device):
                fresh |= states
                n_done += sum(len(sentences[key]) for key in states)
                if on_encode is not None:
                    on_encode(n_done, n_all)
                if sum(map(len, fresh.values())) >= STORED_PIECES:
                    store.write(fresh)
                    self.remember(fresh)
                    fresh = {}
            if sum(map(len, fresh.values())) >= FEWEST_STORED:
                store.write(fresh)
            self.remember(fresh)

    def of(self, ids: Tensor) -> Tensor:
        """Return the states (B, T, E) of documents (B, T), zero where there is padding.

        The rows are those of `PieceTokenizer`.
        """
        texts, pieces_of = self.split(ids)
        found = self.find(pieces_of, ids.device)
        return join_states(texts, found, ids, self.size)

    def split(
        self, ids: Tensor
    ) -> tuple[list[list[bytes]], dict[bytes, NDArray[np.int64]]]:
        """Return the sentences of documents (B, T) by their keys, and their pieces."""
        texts = [
            split_sentences(row[row > 0], self.n_pieces, self.max_pieces)
            for row in ids.cpu().numpy()
        ]
        pieces_of = {pieces.tobytes(): pieces for text in texts for pieces in text}
        pieces_of.pop(b"", None)  # of a text without words
        keys = [[pieces.tobytes() for pieces in text if len(pieces)] for text in texts]
        return keys, pieces_of

    def find(
        self, pieces_of: Mapping[bytes, NDArray[np.int64]], device: torch.device
    ) -> dict[bytes, Tensor]:
        """Return the states of sentences, encoded now unless they are remembered."""
        with self.lock:
            unknown = {k: pieces_of[k] for k in pieces_of if k not in self.cache}
            fresh = self.encode(unknown, device)
            found = {key: self.known(key, fresh) for key in pieces_of}
            self.remember(fresh)
        return found

    def known(self, key: bytes, fresh: Mapping[bytes, Tensor]) -> Tensor:
        """Return the states of an encoded sentence."""
        if key in fresh:
            return fresh[key]
        self.cache.move_to_end(key)
        return self.cache[key]

    def remember(self, fresh: Mapping[bytes, Tensor]) -> None:
        """Keep new states, in place of those not asked for longest, or if they fit."""
        for key, states in fresh.items():
            limit = self.cached_numbers - states.numel()
            while self.forgets and self.cache and self.n_cached > limit:
                self.n_cached -= self.cache.popitem(last=False)[1].numel()
            if self.n_cached <= limit:
                self.cache[key] = states
                self.n_cached += states.numel()

    def encode(
        self, sentences: Mapping[bytes, NDArray[np.int64]], device: torch.device
    ) -> dict[bytes, Tensor]:
        """Return the states (T, E) of each sentence, in half precision."""
        states: dict[bytes, Tensor] = {}
        for batch in self.encode_batches(sentences, device):
            states |= batch
        return states

    def encode_batches(
        self, sentences: Mapping[bytes, NDArray[np.int64]], device: torch.device
    ) -> Iterator[dict[bytes, Tensor]]:
        """Yield what `encode` returns, some sentences of like length at a time."""
        move(self.model, device)
        by_length = sorted(sentences, key=lambda key: len(sentences[key]))
        lengths = [len(sentences[key]) for key in by_length]
        for keys in batches(by_length, lengths, device):
            states = self.run([sentences[key] for key in keys], device)
            yield {
                key: encoded.half() for key, encoded in zip(keys, states, strict=True)
            }

    @torch.no_grad()
    def run(
        self, sentences: Sequence[NDArray[np.int64]], device: torch.device
    ) -> list[Tensor]:
        """Return the last hidden states of some sentences, without special tokens."""
        states = self.model(**self.inputs(sentences, device)).last_hidden_state
        return self.without_special(states, sentences)

    def inputs(
        self, sentences: Sequence[NDArray[np.int64]], device: torch.device
    ) -> dict[str, Tensor]:
        """Return what the model reads: pieces with special tokens, and their mask."""
        longest = max(map(len, sentences)) + len(self.before) + len(self.after)
        ids = np.full((len(sentences), longest), self.padding, dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, pieces in enumerate(sentences):
            whole = [
                *self.before,
                *np.where(pieces < 0, self.unknown, pieces),
                *self.after,
            ]
            ids[row, : len(whole)], mask[row, : len(whole)] = whole, 1
        return {
            "input_ids": torch.from_numpy(ids).to(device),
            "attention_mask": torch.from_numpy(mask).to(device),
        }

    def without_special(
        self, states: Tensor, sentences: Sequence[NDArray[np.int64]]
    ) -> list[Tensor]:
        """Return the states (T, E) of each sentence among those of a batch."""
        first = len(self.before)
        return [
            states[row, first : first + len(pieces)]
            for row, pieces in enumerate(sentences)
        ]


def join_states(
    texts: Sequence[Sequence[bytes]],
    found: Mapping[bytes, Tensor],
    ids: Tensor,
    size: int,
) -> Tensor:
    """Return the states (B, T, E) of documents (B, T), given those of sentences.

    Zero where there is padding.
    """
    rows = []
    for text in texts:
        parts = [found[key].to(ids.device, torch.float32) for key in text]
        rows.append(torch.cat(parts) if parts else torch.zeros(0, size).to(ids.device))
    joined = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return F.pad(joined, (0, 0, 0, ids.shape[1] - joined.shape[1]))


class EncoderEmbedding(nn.Module):
    """Stands where a network has its word vectors: documents to states, normalised."""

    # Whether a step can be captured in a CUDA graph: not if the host looks up which
    # sentences are in a batch.
    capturable = False
    learns = False  # what a model folder will hold of it is known after training only

    def __init__(
        self, states: SentenceStates, pieces: PieceVectors | None = None
    ) -> None:
        """Take the states, and the vectors of pieces to put beside them, if any."""
        super().__init__()
        self.states, self.pieces = states, pieces
        self.embedding_dim = states.size + (0 if pieces is None else pieces.size)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) rows of `PieceTokenizer` to states (B, T, E), zero for padding.

        The vectors of pieces, if there are any, follow the E numbers of a state.
        """
        states = self.normalised(ids)
        if self.pieces is None:
            return states
        return torch.cat([states, self.pieces(ids)], 2)

    def normalised(self, ids: Tensor) -> Tensor:
        """Return the states (B, T, E) alone, normalised, zero for padding."""
        states = F.layer_norm(self.read(ids), (self.states.size,))
        return states * (ids > 0).unsqueeze(2)

    def read(self, ids: Tensor) -> Tensor:
        """Return the states (B, T, E) of documents."""
        return self.states.of(ids)

    def fixed_states(self) -> SentenceStates | None:
        """Return the states that training does not change, if there are any."""
        return self.states

    def encode_all(self, documents: Iterable[NDArray], *how: Any) -> None:
        """Compute the fixed states once, before training; see `SentenceStates`."""
        if (fixed := self.fixed_states()) is not None:
            fixed.encode_all(documents, *how)


def batches(
    keys: Sequence[bytes], lengths: Sequence[int], device: torch.device
) -> Iterator[list[bytes]]:
    """Yield keys in batches of as many pieces as suit a device, padding included."""
    most = GPU_TOKENS if device.type == "cuda" else BATCH_TOKENS
    batch: list[bytes] = []
    for key, length in zip(keys, lengths, strict=True):  # shortest first
        if batch and (len(batch) + 1) * (length + LENGTH_STEP) > most:
            yield batch
            batch = []
        batch.append(key)
    if batch:
        yield batch
