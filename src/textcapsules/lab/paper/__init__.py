"""The paper's tables and displays by one command, from records of runs.

`published`, `systems`, `heads`, `plan`, `place`, `records`, `regression`, `runs`,
`workers`, `figures`, `tables`, `displays`, `table6`, `table_a3`, `campaign`.
"""
