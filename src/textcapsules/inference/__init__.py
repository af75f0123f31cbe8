"""A trained model at work: evaluated on labelled texts, applied to whole files.

`evaluate`, `suspects` (labels that look wrong), `compare` (rivals on the same texts,
as many as some minutes allow),
`recalibrate` (thresholds from reviewed texts), `review` (which texts to look at next),
`bulk`, `bulk_ray`, `estimator` (the scikit-learn face), `report`.
"""
