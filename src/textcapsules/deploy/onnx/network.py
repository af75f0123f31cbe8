"""A network as one ONNX graph: word numbers in, scores of the classes out.

The only input is `ids` (B, T), 0 after a text's end; B and T may be anything. The
numbers tell which places are padding and which texts have no known word, so the scores
are those of `TextClassifier.scores`, whatever a text is padded to. Where the network
stands on a pretrained encoder, they are those of its word pieces (`text.pieces`).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from textcapsules.base.errors import ModelFolderError
from textcapsules.deploy.onnx.encoder import write_states
from textcapsules.deploy.onnx.graph import (
    Graph,
    as_array,
    attend,
    length,
    linear,
    route,
    squash,
)
from textcapsules.deploy.onnx.words import write_words
from textcapsules.model.baselines.pooled import LabelAttention, MeanLinear
from textcapsules.model.capsnet import CapsuleNetwork, NgramBranch
from textcapsules.model.layers import (
    AttentionLayer,
    ConvCapsules,
    RoutedLayer,
    WordEmbedding,
)
from textcapsules.model.network import saved_tensors
from textcapsules.text.encoder import EncoderEmbedding
from textcapsules.text.outside import PRIOR_WORDS, STEPS, OutsideRule
from textcapsules.text.piece_vectors import PieceVectors
from textcapsules.text.pieces import FIRST_PIECE
from textcapsules.text.vocabulary import PAD_ID, UNK_ID

__all__ = ["network_graph"]

FAR = 2.0**20  # past the last place of any text
LOWEST = -1e9  # below any evidence of a word
MAX_BYTES = 2_000_000_000  # one protobuf file can hold this, with room for the nodes


def network_graph(
    network: Any,
    max_tokens: int,
    facts: dict[str, str],
    *,
    drop_unknown: bool = False,
    rule: OutsideRule | None = None,
) -> Any:
    """Return the network as an `onnx.ModelProto`.

    Args:
        network: a capsule network, or a head that pools an encoder's states.
        max_tokens: of a text.
        facts: properties of the file.
        drop_unknown: leave unknown words out before the network reads them.
        rule: which texts lie outside the training topics; they are a second output.
    """
    if not isinstance(network, CapsuleNetwork | MeanLinear):
        raise ModelFolderError(
            f"model must be a capsule network, encoder-linear or encoder-attention to "
            f"be exported; got a {type(network).__name__}. Name another model folder."
        )
    n_bytes = sum(each.nbytes for each in saved_tensors(network).values())
    if isinstance(network.embedding, EncoderEmbedding):
        weights = network.embedding.states.tensors.values()
        n_bytes += sum(4 * each.numel() for each in weights)  # traced in float32
    if n_bytes > MAX_BYTES:
        raise ModelFolderError(
            f"model must have under {MAX_BYTES / 1e9:.0f} GB of weights for one ONNX "
            f"file; got {n_bytes / 1e9:.1f} GB. Train it with fewer words, or on a "
            "smaller encoder."
        )
    graph = Graph()
    helper, types = graph.onnx.helper, graph.onnx.TensorProto
    given = without_unknown(graph, "ids") if drop_unknown else "ids"
    if isinstance(network, CapsuleNetwork):
        scores = write_network(graph, network, max_tokens, given)
    else:
        scores = write_pooled(graph, network, given)
    if network.words is not None:
        scores = write_words(graph, network.words, given, scores)
    graph.nodes.append(helper.make_node("Identity", [scores], ["scores"], "scores"))
    ids = helper.make_tensor_value_info("ids", types.INT64, ["texts", "tokens"])
    out = helper.make_tensor_value_info(
        "scores", types.FLOAT, ["texts", network.n_classes]
    )
    outputs = [out]
    if rule is not None:
        embedding = network.embedding
        is_encoder = isinstance(embedding, EncoderEmbedding)
        outside = write_outside(
            graph, "ids", rule, embedding.states.n_pieces if is_encoder else None
        )
        node = helper.make_node("Identity", [outside], ["outside"], "outside")
        graph.nodes.append(node)
        outputs.append(helper.make_tensor_value_info("outside", types.BOOL, ["texts"]))
    return graph.model([ids], outputs, facts)


def write_outside(
    graph: Graph, ids: str, rule: OutsideRule, n_pieces: int | None
) -> str:
    """Return which texts (B,) of words (B, T) lie outside, as `OutsideRule` says.

    Args:
        graph: to write to.
        ids: with the unknown words.
        rule: of the model.
        n_pieces: V of an encoder, whose pieces count alike where a sentence begins.
    """
    double, boolean = graph.onnx.TensorProto.DOUBLE, graph.onnx.TensorProto.BOOL
    ids = graph.op("Pad", ids, graph.integers(0, 0, 0, 1))  # a maximum of something
    inside = graph.op("Greater", ids, graph.integers(PAD_ID))
    inside = graph.op("Cast", inside, to=double)  # (B, T)
    if n_pieces is not None:
        first = graph.op("Sub", ids, graph.integers(n_pieces))
        begins = graph.op("GreaterOrEqual", first, graph.integers(FIRST_PIECE))
        ids = graph.op("Where", begins, first, ids)
    surprisal = stored_values(graph, rule.surprisal, ids)
    squares = graph.op("Mul", surprisal, surprisal)
    past = is_past(graph, squares, inside, rule.prior, rule.limit)
    if rule.contrast is not None:
        values = stored_values(graph, rule.contrast.table, ids)
        prior, limit = rule.contrast.prior, rule.contrast.limit
        past = graph.op("Or", past, is_past(graph, values, inside, prior, limit))
    has_words = graph.op("Cast", graph.reduce("ReduceMax", inside, 1), to=boolean)
    past = graph.op("And", past, has_words)
    return graph.op("Squeeze", past, graph.integers(1))


def stored_values(graph: Graph, table: NDArray, ids: str) -> str:
    """Return the values (B, T) of words, from a table in units of 1 / STEPS."""
    steps = graph.op("Gather", graph.constant(table, table.dtype), ids)
    steps = graph.op("Cast", steps, to=graph.onnx.TensorProto.DOUBLE)
    return graph.op("Div", steps, graph.constant(STEPS, np.float64))


def is_past(graph: Graph, values: str, inside: str, prior: float, limit: float) -> str:
    """Return whether the mean of a text's values (B, T) is past a limit, (B, 1).

    As in `text.outside.text_means`: the highest value counts as the prior, and so do
    some words more.
    """
    values = graph.op("Mul", values, inside)
    total, size = (graph.reduce("ReduceSum", each, 1) for each in (values, inside))
    # Padding is lower than any word.
    one, low = (graph.constant(each, np.float64) for each in (1.0, LOWEST))
    padding = graph.op("Mul", graph.op("Sub", one, inside), low)
    largest = graph.reduce("ReduceMax", graph.op("Add", values, padding), 1)  # (B, 1)
    more = graph.constant((1 + PRIOR_WORDS) * prior, np.float64)
    total = graph.op("Add", total, graph.op("Sub", more, largest))
    size = graph.op("Add", size, graph.constant(PRIOR_WORDS, np.float64))
    mean = graph.op("Div", total, size)
    return graph.op("Greater", mean, graph.constant(limit, np.float64))


def without_unknown(graph: Graph, ids: str) -> str:
    """Move the known words of (B, T) to the front, in their order; padding follows."""
    is_known = graph.op("Greater", ids, graph.integers(UNK_ID))
    known, anything = (
        to_float(graph, part)
        for part in (is_known, graph.op("GreaterOrEqual", ids, graph.integers(PAD_ID)))
    )
    place = graph.op("CumSum", anything, graph.constant(1, "int64"))  # 1, 2, ... T
    # Known words come before all others, and each kind in its order.
    ahead = graph.op("Mul", known, graph.constant([FAR]))
    keys = graph.op("Sub", ahead, place)
    n_tokens = graph.slice(graph.op("Shape", ids), 0, 1, 2)
    order = graph.largest_first(keys, n_tokens, axis=1)
    kept = graph.op("Where", is_known, ids, graph.integers(PAD_ID))
    return graph.op("GatherElements", kept, order, axis=1)


def write_network(
    graph: Graph, network: CapsuleNetwork, max_tokens: int, given: str
) -> str:
    """Write embedding, branches and their average; return the scores (B, n_classes)."""
    branches = [part for part in network.branches if isinstance(part, NgramBranch)]
    # Where padding votes, or every position has its own transform, all texts are taken
    # at full length; elsewhere padding as wide as the widest window changes nothing.
    per_child = any(is_per_child(branch.classes) for branch in branches)
    fixed = network.pad_to is not None or per_child
    room = max_tokens if fixed else max(branch.min_tokens for branch in branches)
    ids = graph.op("Pad", given, graph.integers(0, 0, 0, room))
    if fixed:
        ids = graph.slice(ids, 1, 0, max_tokens)
    known = to_float(graph, graph.op("Greater", ids, graph.integers(UNK_ID)))
    readable = graph.reduce("ReduceMax", known, 1)  # (B, 1), 1 or 0
    words = to_float(graph, graph.op("Greater", ids, graph.integers(PAD_ID)))
    anything = to_float(graph, graph.op("GreaterOrEqual", ids, graph.integers(PAD_ID)))
    vectors = write_embedding(graph, network.embedding, ids)  # (B, T, V)
    vectors = graph.op("Transpose", vectors, perm=[0, 2, 1])  # (B, V, T)
    poses = []
    for branch in branches:
        edge = branch.edge
        read = vectors
        if branch.numbers not in (None, (0, network.embedding.embedding_dim)):
            read = graph.slice(vectors, 1, *branch.numbers)
        wide = graph.op("Pad", read, graph.integers(0, 0, edge, 0, 0, edge))
        mask = repeat_first(graph, anything, 2 * edge)
        if network.pad_to is None:
            start = first_tokens(graph, mask, branch.min_tokens)
            real = repeat_first(graph, words, 2 * edge)
            mask = graph.op("Mul", graph.op("Max", real, start), readable)
        poses.append(write_branch(graph, branch, wide, mask))  # (B, 1, J, H)
    if isinstance(branches[0].classes, AttentionLayer):  # logits, (B, n_classes, 1)
        scores = graph.op("Sigmoid", graph.op("Mean", *poses))
        scores = graph.op("Squeeze", scores, graph.integers(2))
        return graph.op("Mul", scores, readable)
    if network.average == "poses":
        lengths = length(graph, graph.op("Mean", *poses))
    else:
        parts = [length(graph, each) for each in poses]
        if network.shares is None:
            lengths = graph.op("Mean", *parts)
        else:
            shares = map(graph.constant, network.branch_shares())
            pairs = zip(parts, shares, strict=True)
            lengths = graph.op("Sum", *(graph.op("Mul", *pair) for pair in pairs))
    classes = graph.slice(lengths, 2, 0, network.n_classes)  # (B, 1, n_classes, 1)
    classes = graph.op("Squeeze", classes, graph.integers(1, 3))
    return graph.op("Mul", classes, readable)


def write_pooled(graph: Graph, network: MeanLinear, given: str) -> str:
    """Write a head that pools states; return the scores (B, n_classes)."""
    ids = graph.op("Pad", given, graph.integers(0, 0, 0, 1))  # T may be zero
    known = to_float(graph, graph.op("Greater", ids, graph.integers(UNK_ID)))
    readable = graph.reduce("ReduceMax", known, 1)  # (B, 1), 1 or 0
    words = to_float(graph, graph.op("Greater", ids, graph.integers(PAD_ID)))
    inside = graph.op("Unsqueeze", words, graph.integers(2))  # (B, T, 1)
    states = write_embedding(graph, network.embedding, ids)  # (B, T, E)
    if isinstance(network, LabelAttention):
        far = graph.op("Sub", inside, graph.constant(1.0))  # -1 for padding
        far = graph.op("Mul", far, graph.constant(1e9))
        shares = graph.op("Add", linear(graph, states, network.query), far)
        shares = graph.op("Mul", graph.op("Softmax", shares, axis=1), inside)
        turned = graph.op("Transpose", shares, perm=[0, 2, 1])  # (B, J, T)
        means = graph.op("MatMul", turned, states)  # (B, J, E)
        weight = graph.constant(as_array(network.output.weight))
        products = graph.op("Mul", means, weight)
        logits = graph.op("ReduceSum", products, graph.integers(2), keepdims=0)
        bias = graph.constant(as_array(network.output.bias))
        logits = graph.op("Add", logits, bias)  # (B, J)
    else:
        total = graph.op("Mul", states, inside)
        total = graph.op("ReduceSum", total, graph.integers(1), keepdims=0)  # (B, E)
        size = graph.op("Max", graph.reduce("ReduceSum", words, 1), graph.constant(1.0))
        logits = linear(graph, graph.op("Div", total, size), network.output)
    if network.several:
        scores = graph.op("Sigmoid", logits)
    else:
        scores = graph.op("Softmax", logits, axis=1)
    return graph.op("Mul", scores, readable)


def is_per_child(classes: nn.Module) -> bool:
    """Tell whether every child of the classes has its own transform."""
    return isinstance(classes, RoutedLayer) and classes.transform.ndim == 4


def write_embedding(graph: Graph, embedding: Any, ids: str) -> str:
    """Return the vectors (B, T, V) of words, or the states of an encoder's pieces.

    Words with fixed vectors are in a table of half precision.
    """
    if isinstance(embedding, EncoderEmbedding):
        states = write_states(graph, embedding.states, ids)
        if embedding.pieces is None:
            return states
        vectors = write_pieces(graph, embedding.pieces, ids)
        return graph.op("Concat", states, vectors, axis=2)
    trained = graph.constant(as_array(embedding.weight))
    if not isinstance(embedding, WordEmbedding) or not len(embedding.extra):
        return graph.op("Gather", trained, ids)
    n_words = graph.integers(embedding.num_embeddings)
    is_trained = graph.op("Less", ids, n_words)
    first = graph.integers(0)
    vectors = graph.op("Gather", trained, graph.op("Where", is_trained, ids, first))
    others = graph.constant(as_array(embedding.extra), dtype="float16")
    place = graph.op("Max", graph.op("Sub", ids, n_words), first)
    fixed = to_float(graph, graph.op("Gather", others, place))
    is_trained = graph.op("Unsqueeze", is_trained, graph.integers(2))
    return graph.op("Where", is_trained, vectors, fixed)


def write_pieces(graph: Graph, pieces: PieceVectors, ids: str) -> str:
    """Return the vectors (B, T, V) of word pieces that are learnt beside the states."""
    none = graph.integers(0)
    place = graph.op("Sub", ids, graph.integers(FIRST_PIECE))
    place = graph.op("Mod", place, graph.integers(len(pieces.rows)))
    rows = graph.constant(pieces.rows.cpu().numpy(), dtype="int64")
    row = graph.op("Gather", rows, place)
    is_piece = graph.op("GreaterOrEqual", ids, graph.integers(FIRST_PIECE))
    row = graph.op("Where", is_piece, row, none)
    table = graph.constant(as_array(pieces.vectors.weight))
    return graph.op("Gather", table, row)


def repeat_first(graph: Graph, columns: str, times: int) -> str:
    """Put further copies of the first of (B, T) columns before it."""
    first = graph.slice(columns, 1, 0, 1)
    return graph.op("Concat", *[first] * times, columns, axis=1)


def first_tokens(graph: Graph, ones: str, n_tokens: int) -> str:
    """Return 1 in the first `n_tokens` columns of `ones`, 0 in the others."""
    place = graph.op("CumSum", ones, graph.constant(1, dtype="int64"))  # from 1
    inside = graph.op("LessOrEqual", place, graph.constant(float(n_tokens)))
    return to_float(graph, inside)


def write_branch(graph: Graph, branch: NgramBranch, vectors: str, mask: str) -> str:
    """Write the layers of one n-gram network; return the classes' poses (B, 1, J, H).

    Where attention routes to the classes, their logits (B, n_classes, 1).
    """
    weights = [graph.constant(as_array(each)) for each in branch.ngrams.kernel()]
    stride, size = branch.ngrams.stride, branch.ngrams.ngram_size
    features = graph.op("Conv", vectors, *weights, strides=[stride])  # (B, F, P)
    features = graph.op("Relu", features)
    inside = graph.op("Unsqueeze", mask, graph.integers(1))  # (B, 1, T)
    inside = all_of(graph, inside, size, stride)  # (B, 1, P)
    if branch.peaks:
        features = graph.reduce("ReduceMax", graph.op("Mul", features, inside), 2)
        inside = graph.reduce("ReduceMax", inside, 2)  # (B, 1, 1)
    features = graph.op("Transpose", features, perm=[0, 2, 1])  # (B, P, F)
    poses = linear(graph, features, branch.primary.linear)
    C, D = branch.primary.shape
    poses = graph.op("Reshape", poses, graph.integers(0, 0, C, D))  # (B, P, C, D)
    capsules = squash(graph, poses, branch.primary.squash)
    if branch.conv is not None:
        weight = child_weight(graph, branch.conv, capsules, inside, C)
        inside = all_of(graph, inside, branch.conv.window)  # (B, 1, W)
        capsules = write_conv_capsules(graph, branch.conv, capsules, weight, inside)
        C = branch.conv.transform.shape[-3]
    if isinstance(branch.classes, AttentionLayer):
        place = graph.op("Transpose", inside, perm=[0, 2, 1])  # (B, P, 1)
        each = graph.op("Tile", place, graph.integers(1, 1, C))  # (B, P, C)
        each = graph.op("Reshape", each, graph.integers(0, 1, -1))  # (B, 1, I)
        children = graph.op("Reshape", capsules, graph.integers(0, -1, D))
        return attend(graph, branch.classes, children, each)
    weight = child_weight(graph, branch.classes, capsules, inside, C)
    weight = graph.op("Reshape", weight, graph.integers(0, 1, -1, 1))
    children = graph.op("Reshape", capsules, graph.integers(0, 1, -1, D))
    return route(graph, branch.classes, children, weight)


def child_weight(
    graph: Graph, layer: RoutedLayer, capsules: str, inside: str, C: int
) -> str:
    """Return the factor (B, P, C, 1) of the couplings of capsules (B, P, C, D).

    It is zero where inside (B, 1, P) is zero; elsewhere a capsule's length if amended,
    or else one.
    """
    place = graph.op("Transpose", inside, perm=[0, 2, 1])  # (B, P, 1)
    place = graph.op("Unsqueeze", place, graph.integers(3))  # (B, P, 1, 1)
    if layer.options.amendment:
        return graph.op("Mul", length(graph, capsules), place)
    return graph.op("Tile", place, graph.integers(1, 1, C, 1))


def write_conv_capsules(
    graph: Graph, layer: ConvCapsules, capsules: str, weight: str, inside: str
) -> str:
    """Route (B, P, C, D) in windows of positions; return their parents (B, W, J, D)."""
    # A window that reaches past the text does not vote at all.
    whole = graph.op("Transpose", inside, perm=[0, 2, 1])  # (B, W, 1)
    whole = graph.op("Unsqueeze", whole, graph.integers(3))  # (B, W, 1, 1)
    children = windows(graph, capsules, layer.window)  # (B, W, K·C, D)
    weights = windows(graph, weight, layer.window)  # (B, W, K·C, 1)
    return route(graph, layer, children, graph.op("Mul", weights, whole))


def windows(graph: Graph, values: str, K: int) -> str:
    """Return the values of (B, P, C, D) in each window of K, (B, W, K·C, D)."""
    to_end = 2**31 - 1
    shifted = [
        graph.slice(values, 1, k, k - K + 1 if k < K - 1 else to_end) for k in range(K)
    ]  # each (B, W, C, D)
    return graph.op("Concat", *shifted, axis=2)


def all_of(graph: Graph, mask: str, size: int, stride: int = 1) -> str:
    """Return 1 for each window of `size` whose mask (B, 1, T) is 1 throughout."""
    absent = graph.op("Neg", mask)
    some = graph.op("MaxPool", absent, kernel_shape=[size], strides=[stride])
    return graph.op("Neg", some)


def to_float(graph: Graph, truth: str) -> str:
    """Return 1.0 where true, 0.0 elsewhere."""
    return graph.op("Cast", truth, to=graph.onnx.TensorProto.FLOAT)
