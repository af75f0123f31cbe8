"""A trained model at work: evaluated on labelled texts, applied to whole files.

`evaluate`, `bulk`, `bulk_ray`, `estimator` (the scikit-learn face), `report`.
"""
