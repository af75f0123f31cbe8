"""Capsule networks for text.

Train on texts that carry one label each, predict all the labels a new text deserves.
The modules, in the order of the data's path; each imports only from those before it:
`errors`, `files`, `config`, `data`, `text`, `model`, `losses`, `metrics`, `calibrate`,
`classifier`, `training`, `evaluate`, `bulk`, `report`, `demo`, `bench`, `cli`.
"""

__version__ = "0.1.0"
