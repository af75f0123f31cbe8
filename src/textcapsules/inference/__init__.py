"""A trained model at work: evaluated on labelled texts, applied to whole files.

`evaluate`, `suspects` (labels that look wrong), `compare` (rivals on the same texts),
`bulk`, `bulk_ray`, `estimator` (the scikit-learn face), `report`.
"""
