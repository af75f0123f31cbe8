"""Why did this text get this label? Which phrases spoke for it, and is that true?

The answer is made in four steps, each in its own file:

1. `couplings`, `word_contributions`, `attributions`, `samples`: the methods. Each finds
   how strongly n-grams or words speak for a label: by where routing sent their
   capsules, by what these added to the label, by gradients, by deleting words.
2. `strengths`: one interface to all methods. It returns the strengths of all n-grams
   and all tokens for a batch of texts.
3. `phrases`: strong words make phrases, with ends that can be read.
4. `trials`: the phrases are deleted, and the model predicts again. How far a label's
   score falls is the strength that is shown.

`texts.explain` takes these steps and returns the values of `explanation`; `changes`
finds what would turn a decision round. `methods` says which model can be explained by
which method, `faithfulness` tests methods by deleting what they name, and `choice` does
so at the end of training, to find the model's default.

Two more files build on them: `corpus` adds up the strengths over many texts, and
`routing_inspection` shows what routing did with one text, and how fast it settles.
"""

from textcapsules.reasons.corpus import explain_corpus
from textcapsules.reasons.faithfulness import measure_faithfulness
from textcapsules.reasons.texts import explain, what_would_change

__all__ = [
    "explain",
    "explain_corpus",
    "measure_faithfulness",
    "what_would_change",
]
