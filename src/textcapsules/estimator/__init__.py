"""The scikit-learn face of the package.

`inputs` brings texts and labels to one form, `memory` makes a run of what lies in
memory, `stored` is what a fitted estimator keeps, and
`classifier` what it does: `CapsuleClassifier`.
"""

from textcapsules.estimator.classifier import CapsuleClassifier

__all__ = ["CapsuleClassifier"]
