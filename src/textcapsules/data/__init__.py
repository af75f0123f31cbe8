"""Texts, from a name or a file to a corpus split into train, dev and test.

In the order of the data's path, each module importing only from those before it:
`example` (what a corpus is made of); `contents` and `catalogue` (which corpora there
are, where they come from, what their files must hold); `canonical` (one file of the
canonical form); `split` (hold-outs and folds); `read` (a folder of files to a
`Corpus`); `convert` (raw public files to canonical ones); `fetch` (the only module that
uses the network). Beside them stand `tickets`, the embedded corpus, and a user's own
file: `table_text` (its encoding and delimiter), `table_json` and `table_forms` (its
rows), `table` (its texts and labels, and tables written), `label_names` (labels that
are seldom meant). `load` is the one way in to them all.
"""
