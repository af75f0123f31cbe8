"""Serve models over HTTP, with a page to try them on.

`limits`, `models`, `batching`, `metrics`, `replies`, `schema`, `answers`, `guard`,
`connections`, `app`, `run`.
"""
