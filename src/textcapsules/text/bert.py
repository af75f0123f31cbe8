"""BERT in plain PyTorch, for encoders that only read.

Most small encoders are BERTs. The class of transformers for them imports a compiler,
distributed tensors and losses, which takes longer than to load PyTorch and to score a
text. This one has the same weights under the same names and gives the same states; it
is tested against theirs. Every other kind is left to transformers.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Linear", "PlainBert", "reads_plainly"]

# What the class below takes for granted; a config that says otherwise is not for it.
USUAL = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
# What transformers takes where a config.json leaves it out.
DEFAULTS = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}


def reads_plainly(settings: Mapping[str, Any]) -> bool:
    """Tell whether the encoder of a config.json is such a BERT."""
    usual = all(settings.get(key, value) == value for key, value in USUAL.items())
    return usual and settings.get("model_type") == "bert"


class Linear(nn.Linear):
    """A linear layer whose weights will be read from a file: none are drawn."""

    def reset_parameters(self) -> None:
        """Leave the weights as the memory has them."""


class Embedding(nn.Embedding):
    """The same for rows of vectors."""

    def reset_parameters(self) -> None:
        """Leave the weights as the memory has them."""


class Residual(nn.Module):
    """A linear layer, added to what it stands beside, then normalised."""

    def __init__(self, in_size: int, out_size: int, epsilon: float) -> None:
        super().__init__()
        self.dense = Linear(in_size, out_size)
        self.LayerNorm = nn.LayerNorm(out_size, eps=epsilon)

    def forward(self, values: Tensor, beside: Tensor) -> Tensor:
        """(..., in) and (..., out) to (..., out)."""
        return self.LayerNorm(self.dense(values) + beside)


class SelfAttention(nn.Module):
    """Every place reads from all places, in several heads."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (Linear(size, size) for _ in range(3))

    def forward(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T, E) and (B, 1, 1, T) to (B, T, E)."""
        query, key, value = (
            layer(states).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )  # (B, heads, T, E / heads)
        read = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return read.transpose(1, 2).flatten(2)


class Layer(nn.Module):
    """Attention, then two linear layers, each with what it reads added."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        size, inner = config.hidden_size, config.intermediate_size
        epsilon = config.layer_norm_eps
        self.attention = nn.Module()
        self.attention.self = SelfAttention(size, config.num_attention_heads)
        self.attention.output = Residual(size, size, epsilon)
        self.intermediate = nn.Module()
        self.intermediate.dense = Linear(size, inner)
        self.output = Residual(inner, size, epsilon)

    def forward(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T, E) to (B, T, E)."""
        attention: Any = self.attention
        states = attention.output(attention.self(states, mask), states)
        inner: Any = self.intermediate.dense
        return self.output(F.gelu(inner(states)), states)


class PlainBert(nn.Module):
    """BERT without a pooler and without dropout: pieces to their last hidden states."""

    base_model_prefix = "bert"

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__()
        given = {k: v for k, v in settings.items() if v is not None}
        self.config = config = SimpleNamespace(**{**DEFAULTS, **given})
        size = config.hidden_size
        if size % config.num_attention_heads:
            raise ValueError("hidden_size must be a multiple of num_attention_heads.")
        embeddings: Any = nn.Module()
        embeddings.word_embeddings = Embedding(config.vocab_size, size)
        embeddings.position_embeddings = Embedding(config.max_position_embeddings, size)
        embeddings.token_type_embeddings = Embedding(config.type_vocab_size, size)
        embeddings.LayerNorm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.embeddings, self.encoder = embeddings, nn.Module()
        self.encoder.layer = nn.ModuleList(
            Layer(config) for _ in range(config.num_hidden_layers)
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        """Pieces (B, T) and their mask to `last_hidden_state` (B, T, E)."""
        embeddings, layers = self.embeddings, self.encoder.layer
        states = embeddings.word_embeddings(input_ids)
        states = states + embeddings.token_type_embeddings.weight[0]
        states = states + embeddings.position_embeddings.weight[: input_ids.shape[1]]
        states = embeddings.LayerNorm(states)
        inside = attention_mask.bool()
        mask = None if bool(inside.all()) else inside[:, None, None, :]
        for layer in layers:  # type: ignore[union-attr]
            states = layer(states, mask)
        return SimpleNamespace(last_hidden_state=states)
