"""Texts, from a name or a file to a corpus split into train, dev and test.

`example`: what a corpus is made of
`catalogue`: which benchmark corpora there are, and what their files must hold
`split`: hold-outs and folds
`corpora`: the folder of benchmark corpora
`convert`: public downloads in the form of that folder
`fetch`: downloads; the only module that uses the network
`table_formats`: the rows of a CSV, TSV, JSONL or Parquet file
`table`: a user's texts and labels, read and written
`reviews`: what a person decided about texts, logged and exported
`tickets`: the embedded corpus
`off_topic`: texts that deserve no label, to judge refusals by
`load`: one way in to all of them
"""
