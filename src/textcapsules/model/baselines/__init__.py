"""The networks the paper compares with, each after its own publication."""
