"""Serve models over HTTP, with a page to try them on.

A request passes `connections` (how many, how slow), `guard` (headers, token, size),
`app` (the routes) and `answers` (check, queue, decide). `batching` is the queue and the
thread that runs the model; `review` asks a person about labels. `schema` says what
requests and answers look like, `limits` how much is accepted, `metrics` what is
counted. `run` starts and stops it all.
"""
