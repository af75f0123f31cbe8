"""BERT in plain PyTorch, against the class of transformers."""

import subprocess
import sys

import pytest
import torch

from textcapsules.text.bert import PlainBert, reads_plainly

SETTINGS = {
    "model_type": "bert",
    "vocab_size": 30,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "layer_norm_eps": 1e-5,
}


@torch.no_grad()
@pytest.mark.slow
def test_states_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertModel(transformers.BertConfig(**SETTINGS)).eval()
    for weight in theirs.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    ours = PlainBert(SETTINGS).eval()
    weights = theirs.state_dict()
    ours.load_state_dict({name: weights[name] for name in ours.state_dict()})
    ids = torch.randint(30, (4, 9))
    masks = torch.ones_like(ids), (torch.arange(9) < torch.tensor([[9], [4], [1], [7]]))
    for mask in masks:
        inputs = {"input_ids": ids, "attention_mask": mask.long()}
        inside = mask.bool()
        expected = theirs(**inputs).last_hidden_state[inside]
        found = ours(**inputs).last_hidden_state[inside]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "other",
    [
        {"model_type": "roberta"},
        {"hidden_act": "relu"},
        {"position_embedding_type": "relative_key"},
        {"is_decoder": True},
    ],
)
def test_other_kinds_are_left_to_transformers(other: dict) -> None:
    assert reads_plainly(SETTINGS)
    assert not reads_plainly({**SETTINGS, **other})


def test_heads_must_share_the_states() -> None:
    with pytest.raises(ValueError, match="must be a multiple"):
        PlainBert({**SETTINGS, "num_attention_heads": 5})


@pytest.mark.slow
def test_a_bert_is_built_without_the_classes_of_transformers() -> None:
    program = f"""
import sys
from textcapsules.text.bert import PlainBert
from textcapsules.text.encoder import build_model
settings = {SETTINGS!r}
weights = PlainBert(settings).state_dict()
build_model(settings, weights, "here", plain=True)
assert "transformers" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
