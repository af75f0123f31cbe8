"""A graph of ONNX operations, written one call at a time, with squashing and routing.

An exporter that traces a network fixes the sizes it saw, or takes half a minute to
prove that it fixed none. The network has thirty kinds of operation. They are written
here by name, the sizes that depend on the texts stay open, and the result is compared
with the network afterwards (`export`).

Squashing and routing follow `model.functional` and `model.routing`. Capsules are
(B, W, I, D): I children in each of W windows; the layer of classes has one window.
Iterations are unrolled. Where the transform is shared no vote is computed: see
`model.routing.reference` for the two identities.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor, nn

from textcapsules.base.errors import ModelFolderError, TextCapsulesError
from textcapsules.model.layers import MASS_FLOOR, AttentionLayer, RoutedLayer
from textcapsules.model.routing.attention import MASS_EPSILON

__all__ = ["Graph", "attend", "import_onnx", "length", "linear", "route", "squash"]

# Read by onnxruntime since 1.18; nothing newer is needed.
OPSET, IR_VERSION = 18, 10
SATURATED = 1e9  # as in model.functional
SMALL = 1 << 12  # numbers; larger constants are kept in half precision if that is exact


def import_onnx() -> Any:
    """Import onnx, an extra."""
    try:
        import onnx
    except ImportError as error:
        raise TextCapsulesError(
            "onnx must be installed to export a model; got none. "
            "Run `pip install 'textcapsules[onnx]'`."
        ) from error
    return onnx


class Graph:
    """Operations in order, and the constants they read; values have names.

    >>> graph = Graph()
    >>> graph.op("Add", "x", graph.constant(1.0)), graph.op("Relu", "x")
    ('add_0', 'relu_1')
    """

    def __init__(self) -> None:
        self.onnx = import_onnx()
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Append an operation and return the name of its output."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        node = self.onnx.helper.make_node(kind, inputs, [name], name, **attributes)
        self.nodes.append(node)
        return name

    def largest_first(self, keys: str, n_kept: str, axis: int) -> str:
        """Append a sort along one axis, and return the places of the largest keys."""
        name = f"topk_{len(self.nodes)}"
        outputs = [f"{name}_keys", f"{name}_places"]
        node = self.onnx.helper.make_node(
            "TopK", [keys, n_kept], outputs, name, axis=axis
        )
        self.nodes.append(node)
        return outputs[1]

    def constant(self, value: ArrayLike, dtype: Any = np.float32) -> str:
        """Keep an array and return its name."""
        array = np.ascontiguousarray(value, dtype=dtype).reshape(np.shape(value))
        name = f"constant_{len(self.constants)}"
        self.constants[name] = self.onnx.numpy_helper.from_array(array, name)
        return name

    def integers(self, *values: int) -> str:
        """Keep a list of whole numbers, as shapes and axes are given."""
        return self.constant(values, np.int64)

    def reduce(self, kind: str, value: str, axis: int) -> str:
        """Append a reduction along one axis, which stays with size 1."""
        return self.op(kind, value, self.integers(axis), keepdims=1)

    def slice(self, value: str, axis: int, start: int, end: int) -> str:
        """Append `value[start:end]` along one axis."""
        bounds = [self.integers(number) for number in (start, end, axis)]
        return self.op("Slice", value, *bounds)

    def include(self, model: Any, prefix: str, inputs: dict[str, str]) -> str:
        """Append another model's operations, and return the name of its only output.

        Args:
            model: an `onnx.ModelProto` of the same opset.
            prefix: of all its names.
            inputs: which value stands for each of its inputs.
        """
        prefixed = self.onnx.compose.add_prefix(model, prefix).graph
        named = {prefix + name: value for name, value in inputs.items()}
        for tensor in prefixed.initializer:
            self.constants[tensor.name] = tensor
            array = self.onnx.numpy_helper.to_array(tensor)
            if array.size >= SMALL and is_half(array):
                self.shorten(tensor.name, array)
        for node in prefixed.node:
            node.input[:] = [named.get(name, name) for name in node.input]
            self.nodes.append(node)
        return prefixed.output[0].name

    def shorten(self, name: str, array: np.ndarray) -> None:
        """Keep a float32 constant as half of its bytes; runtimes widen it once."""
        short = f"{name}.half"
        tensor = self.onnx.numpy_helper.from_array(array.astype(np.float16), short)
        self.constants[short] = tensor
        del self.constants[name]
        widen, types = self.onnx.helper.make_node, self.onnx.TensorProto
        self.nodes.append(widen("Cast", [short], [name], name, to=types.FLOAT))

    def model(
        self, inputs: list[Any], outputs: list[Any], facts: dict[str, str]
    ) -> Any:
        """Return the whole as a checked `onnx.ModelProto`."""
        helper = self.onnx.helper
        graph = helper.make_graph(
            self.nodes,
            "textcapsules",
            inputs,
            outputs,
            list(self.constants.values()),
        )
        model = helper.make_model(
            graph,
            producer_name="textcapsules",
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
        )
        helper.set_model_props(model, facts)
        self.onnx.checker.check_model(model, full_check=True)
        return model


def is_half(array: np.ndarray) -> bool:
    """Tell whether half precision holds all numbers of a float32 array exactly."""
    if array.dtype != np.float32:
        return False
    return bool((array.astype(np.float16).astype(np.float32) == array).all())


def length(graph: Graph, poses: str) -> str:
    """Return the norm of poses (..., D) as (..., 1), safe for huge and tiny ones."""
    largest = graph.reduce("ReduceMax", graph.op("Abs", poses), -1)
    above = graph.op("Greater", largest, graph.constant(0.0))
    scale = graph.op("Where", above, largest, graph.constant(1.0))
    norm = graph.reduce("ReduceL2", graph.op("Div", poses, scale), -1)
    return graph.op("Mul", norm, scale)


def squash(graph: Graph, poses: str, kind: str) -> str:
    """Return the poses with their norm x replaced by f(x)."""
    if kind == "none":
        return poses
    norm = length(graph, poses)
    tiny = graph.constant(np.finfo(np.float32).tiny)
    direction = graph.op("Div", poses, graph.op("Max", norm, tiny))
    x = graph.op("Min", norm, graph.constant(SATURATED))
    return graph.op("Mul", squashed_norm(graph, x, kind), direction)


def squashed_norm(graph: Graph, x: str, kind: str) -> str:
    """Return f(x) of a squash."""
    if kind == "tanh":
        return graph.op("Tanh", x)
    if kind == "exp":
        shrunk = graph.op("Exp", graph.op("Neg", x))
        return graph.op("Sub", graph.constant(1.0), shrunk)
    offsets = {"norm": 1.0, "sabour": 1.0, "released": 0.5}
    if kind not in offsets:
        raise ModelFolderError(
            f"squash must be one that ONNX files can hold; got {kind!r}. Train with "
            f"another --squash: exp, tanh, {', '.join(offsets)}."
        )
    power = x if kind == "norm" else graph.op("Mul", x, x)
    offset = graph.constant(offsets[kind])
    return graph.op("Div", power, graph.op("Add", offset, power))


def route(graph: Graph, layer: RoutedLayer, children: str, weight: str) -> str:
    """Route children (B, W, I, D) to poses (B, W, J, H).

    A child's couplings are multiplied by its weight, (B, W, I, 1), which is zero for a
    child that must not vote. Logits and couplings are (B, W, J, I).
    """
    if layer.log_gain is not None:
        weight = share(graph, weight, layer.log_gain.exp().item())
    existence = graph.op("Transpose", weight, perm=[0, 1, 3, 2])  # (B, W, 1, I)
    n_parents, leak = layer.transform.shape[-3], int(layer.options.leaky)
    even = graph.constant(np.full((n_parents, 1), 1 / (n_parents + leak)))
    couplings, logits = graph.op("Mul", existence, even), None
    agreement = Agreement(graph, layer, children)
    for left in reversed(range(layer.options.iterations)):
        poses = squash(graph, agreement.gather(couplings), layer.options.squash)
        if left:
            agreed = agreement.agree(poses)
            logits = agreed if logits is None else graph.op("Add", logits, agreed)
            compete = layer.options.compete
            shares = softmax(graph, logits, n_parents, leak, compete, axis=2)
            couplings = graph.op("Mul", existence, shares)
    return poses  # type: ignore[possibly-undefined]  # there is at least one iteration


def share(graph: Graph, weight: str, gain: float) -> str:
    """Divide the weights of children (B, W, I, 1) by their sum, times a gain."""
    total = graph.reduce("ReduceSum", weight, 2)
    tiny = graph.constant(np.finfo(np.float32).tiny)
    shares = graph.op("Div", weight, graph.op("Max", total, tiny))
    return graph.op("Mul", shares, graph.constant(gain))


def attend(graph: Graph, layer: AttentionLayer, children: str, inside: str) -> str:
    """Route children (B, I, D) by attention; return the classes' logits (B, n, 1).

    A child does not vote where inside (B, 1, I) is zero.
    """
    size, leak = layer.query.shape[1], int(layer.leaky)
    keys, values = (linear(graph, children, part) for part in (layer.key, layer.value))
    keys = graph.op("Mul", keys, graph.constant(size**-0.5))
    turned = graph.op("Transpose", keys, perm=[0, 2, 1])  # (B, H, I)
    query = graph.constant(as_array(layer.query))  # (J, H)
    normed = layer_norm(graph, query, layer)
    for left in reversed(range(layer.iterations)):
        logits = graph.op("MatMul", normed, turned)  # (B, J, I)
        shares = softmax(graph, logits, len(layer.query), leak, layer.compete, axis=1)
        couplings = graph.op("Mul", shares, inside)
        mass = graph.reduce("ReduceSum", couplings, 2)  # (B, J, 1)
        divisor = graph.op("Add", mass, graph.constant(MASS_EPSILON))
        poses = graph.op("Div", graph.op("MatMul", couplings, values), divisor)
        if left:
            normed = layer_norm(graph, graph.op("Add", poses, query), layer)
    n_classes = layer.n_out
    poses = layer_norm(graph, graph.slice(poses, 1, 0, n_classes), layer)  # type: ignore[possibly-undefined]
    logits = graph.op("Mul", poses, graph.constant(as_array(layer.weight)))
    logits = graph.reduce("ReduceSum", logits, 2)  # (B, n, 1)
    logits = graph.op("Add", logits, graph.constant(as_array(layer.bias)[:, None]))
    mass = graph.slice(mass, 1, 0, n_classes)  # type: ignore[possibly-undefined]
    mass = graph.op("Log", graph.op("Add", mass, graph.constant(MASS_FLOOR)))
    from_mass = graph.op("Mul", mass, graph.constant(layer.mass_weight.item()))
    return graph.op("Add", logits, from_mass)


def linear(graph: Graph, values: str, part: nn.Linear) -> str:
    """Return a linear map of (..., D)."""
    moved = graph.op("MatMul", values, graph.constant(as_array(part.weight.T)))
    return graph.op("Add", moved, graph.constant(as_array(part.bias)))


def layer_norm(graph: Graph, values: str, layer: AttentionLayer) -> str:
    """Return (..., H) with mean 0 and deviation 1, scaled and shifted as learnt."""
    scale, shift = (as_array(each) for each in (layer.norm.weight, layer.norm.bias))
    return graph.op(
        "LayerNormalization",
        values,
        graph.constant(scale),
        graph.constant(shift),
        axis=-1,
        epsilon=layer.norm.eps,
    )


def softmax(
    graph: Graph, logits: str, n_parents: int, leak: int, compete: bool, *, axis: int
) -> str:
    """Append a softmax over the parents, with one more of logit zero if leaky.

    Parents that do not compete have a sigmoid each (`coupling_softmax`).
    """
    if not compete:
        others = graph.constant(np.log(max(n_parents - 1 + leak, 1e-30)))
        return graph.op("Sigmoid", graph.op("Sub", logits, others))
    if not leak:
        return graph.op("Softmax", logits, axis=axis)
    first = graph.slice(logits, axis, 0, 1)
    zero = graph.op("Sub", first, first)
    shares = graph.op("Softmax", graph.op("Concat", logits, zero, axis=axis), axis=axis)
    return graph.slice(shares, axis, 0, n_parents)


class Agreement:
    """The votes of children for their parents, and how far the two agree."""

    def __init__(self, graph: Graph, layer: RoutedLayer, children: str) -> None:
        self.graph, self.children = graph, children
        self.shared = layer.transform.ndim == 3
        self.bias = None
        if layer.bias is not None:
            self.bias = graph.constant(as_array(layer.bias))
        transform = as_array(layer.transform)
        if self.shared:
            self.transform = graph.constant(transform[:, None])  # (J, 1, D, H)
            self.back = graph.constant(
                transform.swapaxes(1, 2)[:, None]
            )  # (J, 1, H, D)
            self.turned = graph.op("Transpose", children, perm=[0, 1, 3, 2])
        else:
            each = graph.constant(transform)
            votes = self.einsum("bwid,ijdh->bwijh", children, each)
            self.votes = graph.op("Add", votes, self.bias) if self.bias else votes

    def einsum(self, equation: str, *values: str) -> str:
        """Append an einsum."""
        return self.graph.op("Einsum", *values, equation=equation)

    def by_parent(self, poses: str, transform: str) -> str:
        """Multiply poses (B, W, J, D) by each parent's own matrix of (J, 1, D, H)."""
        parents_first = self.graph.op("Transpose", poses, perm=[2, 0, 1, 3])
        moved = self.graph.op("MatMul", parents_first, transform)  # (J, B, W, H)
        return self.graph.op("Transpose", moved, perm=[1, 2, 0, 3])

    def gather(self, couplings: str) -> str:
        """Return Σ_i c_ij û_j|i, (B, W, J, H)."""
        if not self.shared:
            return self.einsum("bwji,bwijh->bwjh", couplings, self.votes)
        total = self.graph.op("MatMul", couplings, self.children)  # (B, W, J, D)
        total = self.by_parent(total, self.transform)  # (B, W, J, H)
        if self.bias is None:
            return total
        share = self.graph.reduce("ReduceSum", couplings, -1)  # (B, W, J, 1)
        return self.graph.op("Add", total, self.graph.op("Mul", share, self.bias))

    def agree(self, poses: str) -> str:
        """Return û_j|i · v_j, (B, W, J, I)."""
        if not self.shared:
            return self.einsum("bwijh,bwjh->bwji", self.votes, poses)
        pulled = self.by_parent(poses, self.back)  # (B, W, J, D)
        agreed = self.graph.op("MatMul", pulled, self.turned)
        if self.bias is None:
            return agreed
        offset = self.graph.op("Mul", poses, self.bias)  # (B, W, J, H)
        return self.graph.op("Add", agreed, self.graph.reduce("ReduceSum", offset, -1))


def as_array(weight: Tensor) -> np.ndarray:
    """Return a parameter as a numpy array."""
    return weight.detach().float().cpu().numpy()
