"""Which phrases spoke for each label, and whether that is true.

`types`, `routes`, `contributions`, `gradients`, `erasure`, `strengths`, `phrases`,
`texts` (the way in), `faithfulness`, `corpus`, `displays`, `convergence`, `palette`,
`highlight`, `drawing`, `pictures`, `clouds`, `render`.
"""
