"""The paper's tables by one command, from records of runs.

`published`, `systems`, `plan`, `record`, `runs`, `workers`, `figures`, `tables`,
`quick`, `displays`, `campaign`.
"""
