"""The layers: plain numbers in the constructor, tensors and an optional mask after.

`local` reads a text place by place; `routed` routes capsules to parents.
"""

from textcapsules.model.layers.local import (
    CapsuleDropout,
    JointNgrams,
    NgramConv,
    PrimaryCapsules,
    WordEmbedding,
    edge_width,
    ngram_capsules,
    window_mask,
)
from textcapsules.model.layers.routed import (
    MASS_FLOOR,
    AttentionLayer,
    CapsuleLayer,
    ConvCapsules,
    RoutedClasses,
    RoutedLayer,
    set_precision,
)

__all__ = [
    "MASS_FLOOR",
    "AttentionLayer",
    "CapsuleDropout",
    "CapsuleLayer",
    "ConvCapsules",
    "JointNgrams",
    "NgramConv",
    "PrimaryCapsules",
    "RoutedClasses",
    "RoutedLayer",
    "WordEmbedding",
    "edge_width",
    "ngram_capsules",
    "set_precision",
    "window_mask",
]
