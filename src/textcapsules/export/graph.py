"""A graph of ONNX operations, written down one call at a time.

An exporter that traces a network fixes what it saw, or takes half a minute to prove
that nothing was fixed. The network is thirty kinds of operation: they are written here
by name, every size that belongs to the texts left open, and compared with the network
afterwards (`onnx`).
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from textcapsules.errors import TextCapsulesError

__all__ = ["Graph", "import_onnx"]

# Read by onnxruntime since 1.18; nothing newer is needed.
OPSET, IR_VERSION = 18, 10


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
    """Operations in order, and the constants they read; values go by name.

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
