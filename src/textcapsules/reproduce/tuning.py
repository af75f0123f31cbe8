"""What two systems were chosen among, as many settings each: Capsule-B and a CNN.

Word vectors may learn at a share of the rate. Capsules may start at a given length, the
CNN may drop fewer features: a choice of its own for either. All that a setting decides
is said in it, so that it does not depend on what was chosen in the end.
"""

from itertools import product

from textcapsules.reproduce.systems import Options

__all__ = ["TUNED", "TUNED_ON"]

TUNED_ON = {"mr": 4, "cr": 4, "trec": 3}  # folds or seeds of each, judged on dev
RATES, SHARES = (1e-3, 2e-3, 5e-4), (1.0, 0.3, 0.1)


def _settings(
    section: str, field: str, usual: float, other: float
) -> dict[str, Options]:
    """Return every rate with every share, and the other value with every share."""
    found: dict[str, Options] = {}
    cases = [(rate, share, usual) for rate, share in product(RATES, SHARES)]
    cases += [(RATES[0], share, other) for share in SHARES]
    for rate, share, value in cases:
        options: Options = {
            "model": {"edges": False},
            "train": {
                "learning_rate": rate,
                "rate_decay": 1.0,
                "vector_rate": share,
            },
        }
        options.setdefault(section, {})[field] = value
        name = f"rate {rate:g}, of vectors {share:g}"
        if value == other:
            name += f", {field.replace('_', ' ')} {value:g}"
        found[name] = options
    return found


# N-grams over the ends were found after these settings (results/best/edges.json).
_IN_TABLES: dict[str, Options] = {"as in the tables, n-grams over the ends": {}}

TUNED: dict[str, dict[str, Options]] = {
    "capsule_b_tuned": _settings("train", "start_length", 0.0, 0.4) | _IN_TABLES,
    "cnn_tuned": _settings("rival", "output_dropout", 0.5, 0.3) | _IN_TABLES,
}
