"""Why did this text get this label? Which phrases spoke for it, and is that true?

The answer is made in three steps, each in its own file:

1. `couplings`: routing sends a share of every capsule to every label, the coupling. The
   couplings of the capsules of one n-gram give the strength of this n-gram for the
   label. `attributions` finds strengths for models without capsules, by gradients and
   by deleting words.
2. `strengths`: one interface to all these methods. It returns the strengths of all
   n-grams and all tokens for a batch of texts.
3. `phrases`: strong n-grams overlap. The strongest are picked, and cut out of the text.

`texts.explain` takes these steps and returns the values of `explanation`. `methods`
says which model can be explained by which method.

Three more files build on them: `corpus` adds up the strengths over many texts,
`faithfulness` tests explanations by deleting what they name, and `routing_inspection`
shows what routing did with one text, and how fast it settles.
"""

from textcapsules.reasons.corpus import explain_corpus
from textcapsules.reasons.faithfulness import measure_faithfulness
from textcapsules.reasons.texts import explain

__all__ = ["explain", "explain_corpus", "measure_faithfulness"]
