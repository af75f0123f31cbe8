"""Routing and its neighbours compiled for a GPU by Triton."""
