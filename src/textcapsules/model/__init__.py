"""The network: `functional`, `routing`, `layers`, `capsnet`, `baselines`, `builder`."""
