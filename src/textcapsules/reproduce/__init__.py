"""The paper's tables by one command, from records of runs.

`published`, `systems`, `tuning`, `cell`, `plan`, `record`, `search`, `runs`,
`workers`, `statistics`, `board`, `markup`, `compare`, `transfer`, `tables`, `plots`,
`unpack`, `quick`, `visual`, `table6`, `word_sums`, `a3`, `campaign`.
"""
