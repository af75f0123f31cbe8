"""A pretrained encoder whose weights learn with the network above it.

All weights learn (`tuned`), or those of the last layers alone (`light`). What lies
below the layers that learn never changes, so `light` computes its states once per
sentence and keeps them, as a frozen encoder's are kept: a step then costs the last
layers only. To run a model from the middle, its lower layers are replaced by one that
hands out the kept states (`Given`); masks, position biases and rotations are still the
model's own. A model that cannot be run so is run whole, which is slower.

Where whole texts are read and all weights learn, a batch goes to the encoder as it is,
padding included. The host then looks nothing up: it never waits for a GPU, and a
training step can be captured as a CUDA graph.

The weights that learn are float32. Products are computed in bfloat16 on a GPU and on a
CPU that has instructions for it, where a step then takes less than half the time;
what lies between the products stays in float32. After training the encoder is frozen
again with its new weights in half precision (`frozen`): what is calibrated, saved and
loaded is the same.
"""

import copy
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from textcapsules.base.errors import ConfigError, TextCapsulesError
from textcapsules.text.encoder import (
    LENGTH_STEP,
    EncoderEmbedding,
    SentenceStates,
    batches,
    build_model,
    freeze,
    join_states,
    move,
    multiplies_bfloat16,
    own_name,
)
from textcapsules.text.piece_vectors import PieceVectors
from textcapsules.text.vocabulary import PAD_ID, UNK_ID

__all__ = ["LearningEncoder", "find_layers"]

PROBE = 8  # pieces of the sentence on which a cut model is compared with the whole one
TOLERANCE = 2e-2  # of the states' length: kept states and products have fewer bits
PAIRS_TOLERANCE = 1e-4
# Numbers that a layer keeps per number of a state for its backward pass, about; and
# the share of the memory that a batch may take before layers are computed twice.
KEPT_NUMBERS, MEMORY_SHARE = 32, 0.25
WHOLE_TOKENS = 1 << 15  # of whole texts in one call, padding included
NEVER = -1e9  # added to the attention where nothing may be read

log = logging.getLogger(__name__)


class LearningEncoder(EncoderEmbedding):
    """Stands where a network has its word vectors; its layers learn with the network.

    Only what learns is registered as a part of the network: that is what Adam moves,
    what checkpoints hold and what is averaged.
    """

    learns = True

    def __init__(
        self,
        states: SentenceStates,
        pieces: PieceVectors | None = None,
        *,
        n_layers: int | None = None,
        whole_texts: bool = False,
        memory: int | None = None,
    ) -> None:
        """Copy an encoder.

        Args:
            states: of the frozen encoder, which stays as it is.
            pieces: vectors of pieces to put beside the states.
            n_layers: how many of the last layers learn; None: all weights do.
            whole_texts: documents are texts read as a whole, without marked sentences.
            memory: of the device in bytes. A batch that would take a large part of it
                computes its layers twice rather than keep all that they computed.
        """
        super().__init__(states, pieces)
        self.memory, self.twice = memory, False
        self.capturable = whole_texts and n_layers is None
        model = build_model(states.settings, states.tensors, "the encoder's folder")
        layers = find_layers(model)
        model.requires_grad_(n_layers is None)
        for name, part in model.named_children():
            if "pooler" in name:  # no state depends on it
                part.requires_grad_(False)
        if n_layers is not None and n_layers > len(layers):
            raise ConfigError(
                f"encoder_layers must be at most {len(layers)}, the layers of this "
                f"encoder; got {n_layers}. Lower it, or choose --encoder-training "
                "tuned."
            )
        n_fixed = 0 if n_layers is None else len(layers) - n_layers
        top = list(layers)[n_fixed:]  # the layers that learn
        self.n_layers = len(top)
        self.depth_of = {  # layers above the one that a weight belongs to
            parameter: depth
            for depth, layer in enumerate(reversed(top))
            for parameter in layer.parameters()
        }
        self.learnt: nn.Module = model
        if n_layers is not None:
            self.learnt = nn.ModuleList(top).requires_grad_()
        # In tuples, so that torch does not register what stays as it is.
        self.whole = (model,)
        self.given: tuple[Given, ...] = ()
        self.takes_pairs = self.capturable and takes_pairs(model, states)
        self.lower: LowerStates | None = None
        if n_fixed:
            self.lower = lower_states(states, n_fixed)
            self.cut(layers, n_fixed)

    def cut(self, layers: nn.ModuleList, n_fixed: int) -> None:
        """Replace the lower layers, if the model can be run from the middle."""
        assert self.lower is not None
        below, device = list(layers)[:n_fixed], torch.device("cpu")
        pieces = np.arange(PROBE) % self.states.n_pieces
        sentence = {pieces.tobytes(): pieces}
        self.lower.model.to(device)
        with torch.no_grad():
            (expected,) = self.run(sentence, device).values()
            self.given = tuple(Given(layer) for layer in below)
            for number, given in enumerate(self.given):
                layers[number] = given
            try:
                (found,) = self.run(sentence, device).values()
                error = (found - expected).norm() / expected.norm()
                agrees = bool(error < TOLERANCE)
            except Exception as fault:  # of the library's code, which expected a layer
                log.debug("a model cut in the middle: %s", fault)
                agrees = False
        if not agrees:
            log.warning(
                "the lower layers of this encoder are computed anew in every step, "
                "which is slower: it cannot be run from the middle."
            )
            for number, layer in enumerate(below):
                layers[number] = layer
            self.given, self.lower = (), None

    def learning_parameters(self) -> Iterator[tuple[int, nn.Parameter]]:
        """Yield each weight that learns, and how many layers lie above it.

        What belongs to no layer, such as the vectors of word pieces, lies below all.
        """
        for parameter in self.learnt.parameters():
            if parameter.requires_grad:
                yield self.depth_of.get(parameter, self.n_layers), parameter

    def fixed_states(self) -> SentenceStates | None:
        """Return the states below the layers that learn; None if all layers do."""
        return self.lower

    def read(self, ids: Tensor) -> Tensor:
        """Return the states (B, T, E) of documents, with gradients in training."""
        move(self.whole[0], ids.device)
        if self.capturable:
            return self.read_texts(ids)
        texts, pieces_of = self.states.split(ids)
        by_length = sorted(pieces_of, key=lambda key: len(pieces_of[key]))
        lengths = [len(pieces_of[key]) for key in by_length]
        self.save_memory(sum(lengths))
        found: dict[bytes, Tensor] = {}
        for keys in batches(by_length, lengths, ids.device):
            found |= self.run({key: pieces_of[key] for key in keys}, ids.device)
        return join_states(texts, found, ids, self.states.size)

    def read_texts(self, ids: Tensor) -> Tensor:
        """Return the states (B, T, E) of whole texts, those of padding arbitrary.

        Longer ones than the encoder reads are cut into windows.
        """
        n_texts, n_places = ids.shape
        window = min(n_places, self.states.max_pieces)
        n_windows = -(-n_places // window)
        ids = nn.functional.pad(ids, (0, n_windows * window - n_places))
        ids = ids.reshape(n_texts * n_windows, window)
        together = max(WHOLE_TOKENS // window, 1)
        self.save_memory(min(len(ids), together) * window)
        states = [self.read_windows(part) for part in ids.split(together)]
        read = states[0] if len(states) == 1 else torch.cat(states)
        return read.reshape(n_texts, n_windows * window, -1)[:, :n_places]

    def read_windows(self, ids: Tensor) -> Tensor:
        """Return the states (B, T, E) of stretches of texts, one row each."""
        states = self.states
        first, n_after = len(states.before), len(states.after)
        width = first + ids.shape[1] + n_after
        # Products of such lengths are the fastest.
        width = max(width, min(-(-width // LENGTH_STEP) * LENGTH_STEP, states.longest))
        n_pieces = (ids > PAD_ID).sum(1, keepdim=True)  # (B, 1)
        places = torch.arange(width, device=ids.device)  # (L,)
        pieces = (ids - (UNK_ID + 1)) % states.n_pieces
        pieces = torch.where(ids == UNK_ID, states.unknown, pieces)
        pieces = nn.functional.pad(pieces, (first, width - first - ids.shape[1]))
        inside = (places >= first) & (places < first + n_pieces)  # (B, L)
        pieces = torch.where(inside, pieces, states.padding)
        for place, piece in enumerate(states.before):
            pieces = torch.where(places == place, piece, pieces)
        for place, piece in enumerate(states.after):
            pieces = torch.where(places == first + n_pieces + place, piece, pieces)
        is_text = places < first + n_pieces + n_after
        hidden = self.hidden(
            {"input_ids": pieces, "attention_mask": self.mask_of(is_text)}, ids.device
        )
        return hidden[:, first : first + ids.shape[1]]

    def mask_of(self, is_text: Tensor) -> Tensor:
        """Return the mask that the model wants, given which places (B, L) are text."""
        return mask_pairs(is_text) if self.takes_pairs else is_text.long()

    def hidden(self, inputs: Mapping[str, Tensor], device: torch.device) -> Tensor:
        """Return the model's last hidden states in float32."""
        on_cpu = device.type == "cpu"
        short = multiplies_bfloat16() if on_cpu else device.type == "cuda"
        with torch.autocast(device.type, torch.bfloat16, enabled=short):
            output = self.whole[0](**inputs)
        return output.last_hidden_state.float()

    def run(
        self, sentences: Mapping[bytes, NDArray[np.int64]], device: torch.device
    ) -> dict[bytes, Tensor]:
        """Return the last hidden states (T, E) of some sentences."""
        pieces = list(sentences.values())
        if self.lower is not None and self.given:
            kept = self.lower.find(sentences, device)
            below = nn.utils.rnn.pad_sequence(
                [kept[key].to(device, torch.float32) for key in sentences],
                batch_first=True,
            )
            for given in self.given:
                given.states, given.n_outputs = below, self.lower.n_outputs
        states = self.hidden(self.states.inputs(pieces, device), device)
        for given in self.given:
            given.states = None
        return dict(
            zip(sentences, self.states.without_special(states, pieces), strict=True)
        )

    def save_memory(self, n_pieces: int) -> None:
        """Compute layers twice where a batch would keep too much for one pass."""
        model = self.whole[0]
        if not getattr(model, "supports_gradient_checkpointing", False):
            return
        needed = 4 * KEPT_NUMBERS * n_pieces * self.states.size * self.n_layers
        too_large = self.memory is not None and needed > MEMORY_SHARE * self.memory
        if too_large == self.twice:
            return
        self.twice = too_large
        # transformers before 5.20 has the former names only.
        has_new = hasattr(model, "activation_checkpointing_enable")
        name = f"{'activation' if has_new else 'gradient'}_checkpointing"
        if too_large:
            getattr(model, f"{name}_enable")({"use_reentrant": False})
        else:
            getattr(model, f"{name}_disable")()

    def frozen(self) -> EncoderEmbedding:
        """Return the encoder with the weights learnt, as a model folder will hold it.

        The device is the CPU until the states are asked for on another.
        """
        model, old = self.whole[0], self.states
        names = {id(value): name for name, value in model.named_parameters()}
        learnt = {names[id(p)]: p for p in self.learnt.parameters() if p.requires_grad}
        tensors = {
            key: learnt[name].detach().to("cpu", torch.float16, copy=True)
            if (name := own_name(model, key)) in learnt
            else value
            for key, value in old.tensors.items()
        }
        for key, value in tensors.items():
            if not value.isfinite().all():
                raise TextCapsulesError(
                    f"the encoder's weights must stay within half precision; got "
                    f"others in {key!r}. Lower --encoder-rate."
                )
        fresh = freeze(build_model(old.settings, tensors, "the encoder's folder"))
        return EncoderEmbedding(
            SentenceStates(fresh, old.tokenizer, old.settings, tensors), self.pieces
        )


def mask_pairs(is_text: Tensor) -> Tensor:
    """Return what is added where one place reads another (B, 1, L, L)."""
    n_texts, width = is_text.shape
    added = torch.where(is_text, 0.0, NEVER)[:, None, None, :]
    return added.expand(n_texts, 1, width, width)


@torch.no_grad()
def takes_pairs(model: Any, states: SentenceStates) -> bool:
    """Tell whether a model takes a mask over pairs of places as it is.

    From a mask over places, some models and versions of the library make it in steps
    that wait for the GPU.
    """
    pieces = np.arange(PROBE) % states.n_pieces
    inputs = states.inputs([pieces, pieces[: PROBE // 2]], torch.device("cpu"))
    expected = model(**inputs).last_hidden_state[1, : PROBE // 2]
    is_text = inputs["attention_mask"] > 0
    try:
        inputs = {**inputs, "attention_mask": mask_pairs(is_text)}
        found = model(**inputs).last_hidden_state[1, : PROBE // 2]
    except Exception as fault:  # of the library's code, which expected another shape
        log.debug("a mask over pairs of places: %s", fault)
        return False
    return bool((found - expected).norm() < PAIRS_TOLERANCE * expected.norm())


class Given(nn.Module):
    """Stands for a layer whose output is known: it hands out `states`."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.states: Tensor | None = None
        self.n_outputs: int | None = None  # of a layer that returns a tuple
        for name, value in vars(layer).items():  # such as the kind of its attention
            if not name.startswith("_") and isinstance(value, str | int | float):
                setattr(self, name, value)

    def forward(self, *_: Any, **__: Any) -> Any:
        """Return the states in the form that the layer has."""
        if self.n_outputs is None:
            return self.states
        return (self.states, *[None] * (self.n_outputs - 1))


class LowerStates(SentenceStates):
    """States of sentences after some of the layers, special tokens included."""

    def __init__(self, model: Any, states: SentenceStates, n_layers: int) -> None:
        """Take a model whose last `n_layers` are already removed."""
        super().__init__(model, states.tokenizer, states.settings, states.tensors)
        self.n_layers = n_layers
        self.n_outputs: int | None = None
        find_layers(model)[-1].register_forward_hook(self.keep)
        self.output: Tensor | None = None

    def keep(self, _module: nn.Module, _inputs: Any, output: Any) -> None:
        """Keep what the last layer returns: a norm may follow it."""
        self.n_outputs = len(output) if isinstance(output, tuple) else None
        self.output = output[0] if isinstance(output, tuple) else output

    def checksum(self) -> str:
        """Return a checksum of all that decides the states."""
        return f"{self.n_layers:02d}{super().checksum()}"

    @torch.no_grad()
    def run(
        self, sentences: Sequence[NDArray[np.int64]], device: torch.device
    ) -> list[Tensor]:
        """Return the hidden states of some sentences after the last layer left."""
        self.model(**self.inputs(sentences, device))
        states, self.output = self.output, None
        assert states is not None
        n_special = len(self.before) + len(self.after)
        return [
            states[row, : len(pieces) + n_special]
            for row, pieces in enumerate(sentences)
        ]


def lower_states(states: SentenceStates, n_layers: int) -> LowerStates:
    """Return the states after the first `n_layers` of a frozen encoder."""
    model = copy.deepcopy(states.model)
    del find_layers(model)[n_layers:]
    return LowerStates(model, states, n_layers)


def find_layers(model: nn.Module) -> nn.ModuleList:
    """Return the layers of an encoder: its largest list of modules of one kind."""
    lists = [
        part
        for part in model.modules()
        if isinstance(part, nn.ModuleList) and len({type(each) for each in part}) == 1
    ]
    if not lists:
        raise ConfigError(
            f"encoder must have a list of layers to be trained; got a "
            f"{type(model).__name__} without one. Choose --encoder-training frozen."
        )
    return max(lists, key=lambda part: sum(p.numel() for p in part.parameters()))
