"""A model's report as one page: what was found, then how it is shown.

`findings`, `results`, `reasons`, `page`.
"""
