"""A pretrained encoder inside an ONNX graph: documents of word pieces to states.

Documents are those of `text.pieces`: one row number per piece, which also tells where a
sentence begins. The graph lays the sentences of all documents out as rows, encodes each
by itself, and puts the states back where their pieces stand. So a file has one input,
as that of a model on words has, and what reads it need not know how sentences are
encoded, cut into windows or joined.

The encoder's own operations come from torch's exporter. The sizes of an encoder stay
open in its trace, unlike those of a capsule network: the tests have six kinds, with any
number of sentences and pieces.
"""

import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from textcapsules.base.errors import ModelFolderError
from textcapsules.deploy.onnx.graph import OPSET, Graph
from textcapsules.text.encoder import SentenceStates, build_model
from textcapsules.text.pieces import FIRST_PIECE
from textcapsules.text.vocabulary import PAD_ID, UNK_ID

__all__ = ["float_states", "write_states"]

LAYER_NORM_EPSILON = 1e-5  # torch's default, as in `EncoderEmbedding`


def float_states(states: SentenceStates) -> SentenceStates:
    """Return the same encoder with all products in float32, which defines the states.

    On a CPU that multiplies bfloat16 a model uses that; ONNX files do not.
    """
    model = float_model(states)
    return SentenceStates(model, states.tokenizer, states.settings, states.tensors)


def float_model(states: SentenceStates) -> Any:
    """Return the encoder in float32."""
    model = build_model(states.settings, states.tensors, "the model's folder")
    return model.eval().requires_grad_(False)


class Sentences(NamedTuple):
    """Names of values that say which sentence holds which piece.

    N pieces of all documents, after one that stands for padding; S sentences of P
    places.
    """

    pieces: str  # (S, P), with special tokens
    mask: str  # (S, P)
    places: str  # (N,), of each piece among the S·P places


def write_states(graph: Graph, states: SentenceStates, ids: str) -> str:
    """Return the normalised states (B, T, E) of documents (B, T), zero for padding."""
    is_piece = graph.op("Greater", ids, graph.integers(PAD_ID))  # (B, T)
    rows, first = flat_pieces(graph, states, ids, is_piece)  # (N,)
    sentences = lay_out(graph, states, rows, first)
    hidden = write_encoder(graph, states, sentences)  # (S, P, E)
    flat = graph.op("Reshape", hidden, graph.integers(-1, states.size))
    found = graph.op("Gather", flat, sentences.places)  # (N, E)
    found = to_half_and_back(graph, found)  # as the model keeps them
    found = graph.op(
        "LayerNormalization",
        found,
        graph.constant(np.ones(states.size)),
        graph.constant(np.zeros(states.size)),
        axis=-1,
        epsilon=LAYER_NORM_EPSILON,
    )
    # The pieces of a batch are numbered from 1, document by document.
    counted = graph.op("Reshape", to_integer(graph, is_piece), graph.integers(-1))
    number = graph.op("CumSum", counted, graph.constant(0, np.int64))
    number = graph.op("Mul", number, counted)  # 0 for padding
    number = graph.op("Reshape", number, graph.op("Shape", ids))  # (B, T)
    inside = graph.op("Cast", is_piece, to=graph.onnx.TensorProto.FLOAT)
    inside = graph.op("Unsqueeze", inside, graph.integers(2))
    return graph.op("Mul", graph.op("Gather", found, number), inside)


def flat_pieces(
    graph: Graph, states: SentenceStates, ids: str, is_piece: str
) -> tuple[str, str]:
    """Return the rows (N,) of all pieces, and 1 for those that begin a sentence.

    One unknown piece, a sentence of its own, comes before them: where all texts are
    empty the encoder has something to read, and padding has states to point to.
    """
    places = graph.op("NonZero", is_piece)  # (2, N)
    rows = graph.op("GatherND", ids, graph.op("Transpose", places, perm=[1, 0]))
    column = graph.op("Squeeze", graph.slice(places, 0, 1, 2), graph.integers(0))
    at_start = graph.op("Equal", column, graph.integers(0))
    limit = graph.integers(FIRST_PIECE + states.n_pieces)
    begins = graph.op("Or", at_start, graph.op("GreaterOrEqual", rows, limit))
    one = graph.integers(1)
    rows = graph.op("Concat", graph.integers(UNK_ID), rows, axis=0)
    first = graph.op("Concat", one, to_integer(graph, begins), axis=0)
    return rows, first


def lay_out(graph: Graph, states: SentenceStates, rows: str, first: str) -> Sentences:
    """Put pieces (N,) into sentences, those past the encoder's window into several."""
    n_pieces = graph.op("Shape", rows)  # (1,)
    flat = count_to(graph, n_pieces)  # (N,)
    column = graph.op("Sub", flat, gather_starts(graph, first))  # in its sentence
    window = graph.integers(states.max_pieces)
    column = graph.op("Mod", column, window)  # in its window
    first = to_integer(graph, graph.op("Equal", column, graph.integers(0)))
    starts = first_places(graph, first)  # (S,)
    after = graph.slice(starts, 0, 1, 2**31 - 1)
    ends = graph.op("Concat", after, n_pieces, axis=0)
    lengths = graph.op("Sub", ends, starts)  # (S,)
    before, behind = len(states.before), len(states.after)
    longest = graph.reduce("ReduceMax", lengths, 0)  # (1,)
    width = graph.op("Add", longest, graph.integers(before + behind))
    pieces, mask = fill(graph, states, rows, starts, lengths, width)
    sentence = graph.op("Sub", running_sum(graph, first), graph.integers(1))  # (N,)
    place = graph.op("Add", column, graph.integers(before))
    place = graph.op("Add", graph.op("Mul", sentence, width), place)
    return Sentences(pieces, mask, place)


def fill(
    graph: Graph,
    states: SentenceStates,
    rows: str,
    starts: str,
    lengths: str,
    width: str,
) -> tuple[str, str]:
    """Return the encoder's piece numbers (S, P), and 1 where they are no padding."""
    place = graph.op("Unsqueeze", count_to(graph, width), graph.integers(0))  # (1, P)
    start, length = (
        graph.op("Unsqueeze", each, graph.integers(1)) for each in (starts, lengths)
    )  # (S, 1)
    n_before = graph.integers(len(states.before))
    inner = graph.op("Sub", place, n_before)  # (1, P), in the sentence itself
    index = graph.op("Max", graph.op("Min", inner, length), graph.integers(0))
    index = graph.op("Add", index, start)
    last = graph.op("Sub", graph.op("Shape", rows), graph.integers(1))
    found = graph.op("Gather", rows, graph.op("Min", index, last))  # (S, P)
    is_known = graph.op("Greater", found, graph.integers(UNK_ID))
    number = graph.op("Sub", found, graph.integers(FIRST_PIECE))
    number = graph.op("Mod", number, graph.integers(states.n_pieces))
    number = graph.op("Where", is_known, number, graph.integers(states.unknown))
    padding = getattr(states.model.config, "pad_token_id", None) or 0
    past = graph.op("Sub", inner, length)  # (S, P), from 0 after the last piece
    is_past = graph.op("GreaterOrEqual", past, graph.integers(0))
    number = graph.op("Where", is_past, graph.integers(padding), number)
    for where, special in ((place, states.before), (past, states.after)):
        for at, piece in enumerate(special):
            is_here = graph.op("Equal", where, graph.integers(at))
            number = graph.op("Where", is_here, graph.integers(piece), number)
    is_read = graph.op("Less", past, graph.integers(len(states.after)))
    return number, to_integer(graph, is_read)


def gather_starts(graph: Graph, first: str) -> str:
    """Return where the sentence of each piece (N,) begins, given 1 for beginnings."""
    sentence = graph.op("Sub", running_sum(graph, first), graph.integers(1))
    return graph.op("Gather", first_places(graph, first), sentence)


def first_places(graph: Graph, first: str) -> str:
    """Return the places of the ones among (N,)."""
    return graph.op("Squeeze", graph.op("NonZero", first), graph.integers(0))


def running_sum(graph: Graph, values: str) -> str:
    """Return the sums of (N,) up to each place."""
    return graph.op("CumSum", values, graph.constant(0, np.int64))


def count_to(graph: Graph, size: str) -> str:
    """Return 0, 1, ... up to one less than a size (1,)."""
    zero, one = graph.constant(0, np.int64), graph.constant(1, np.int64)
    return graph.op("Range", zero, graph.op("Squeeze", size), one)


def to_integer(graph: Graph, truth: str) -> str:
    """Return 1 where true, 0 elsewhere."""
    return graph.op("Cast", truth, to=graph.onnx.TensorProto.INT64)


def to_half_and_back(graph: Graph, values: str) -> str:
    """Return float32 numbers rounded to half precision."""
    types = graph.onnx.TensorProto
    return graph.op("Cast", graph.op("Cast", values, to=types.FLOAT16), to=types.FLOAT)


def write_encoder(graph: Graph, states: SentenceStates, sentences: Sentences) -> str:
    """Append the encoder's own operations; return the last hidden states (S, P, E)."""
    inputs = {"pieces": sentences.pieces, "mask": sentences.mask}
    return graph.include(trace(graph, states), "encoder/", inputs)


class Encode(nn.Module):
    """The encoder as a function of two tensors, which is what is traced."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pieces: Tensor, mask: Tensor) -> Tensor:
        """(S, P) numbers and their mask to the last hidden states (S, P, E)."""
        output = self.model(input_ids=pieces, attention_mask=mask)
        return output.last_hidden_state


def trace(graph: Graph, states: SentenceStates) -> Any:
    """Return the encoder as an `onnx.ModelProto` with inputs of any size."""
    model = Encode(float_model(states)).eval()
    numbers = np.full((2, 5), states.unknown)
    pieces, mask = torch.from_numpy(numbers), torch.ones(2, 5, dtype=torch.int64)
    mask[1, 3:] = 0  # a mask of ones alone might be left out
    sizes = {0: "sentences", 1: "pieces"}
    names = ("pieces", "mask", "states")
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            file = Path(folder) / "encoder.onnx"
            # The other exporter needs one more package; this one is to go some day.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                model,
                (pieces, mask),
                str(file),
                input_names=list(names[:2]),
                output_names=[names[2]],
                dynamic_axes=dict.fromkeys(names, sizes),
                opset_version=OPSET,
                dynamo=False,
            )
            return graph.onnx.load(file)
    except Exception as error:  # of any operation that the exporter does not know
        kind = states.settings.get("model_type")
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelFolderError(
            f"encoder must be one that torch can write as ONNX; got a {kind!r} "
            f"({reason}). Train on another encoder."
        ) from error
