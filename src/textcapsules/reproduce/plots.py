"""Figure 3: training loss by epoch, one curve for each number of iterations."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from textcapsules.files import atomic_path

__all__ = ["plot_losses"]

# Okabe and Ito's colours, told apart by every kind of sight; lines differ too.
STYLES = (("#0072B2", "-", "o"), ("#D55E00", "--", "s"), ("#009E73", ":", "^"))


def plot_losses(
    curves: Mapping[int, Sequence[Sequence[float]]], folder: Path
) -> list[Path]:
    """Draw the mean loss of every number of iterations, its range shaded.

    Args:
        curves: by iterations, the losses by epoch of every run.
        folder: where `figure3.svg` and `figure3.png` go.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # no pyplot: no global state, no display
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for (iterations, runs), style in zip(curves.items(), STYLES, strict=False):
        colour, line, marker = style
        n_epochs = min(len(run) for run in runs)
        losses = np.array([run[:n_epochs] for run in runs])  # (runs, epochs)
        epochs = np.arange(1, n_epochs + 1)
        label = f"{iterations} iteration{'s' * (iterations > 1)}"
        axes.plot(
            epochs,
            losses.mean(0),
            color=colour,
            linestyle=line,
            marker=marker,
            markersize=4,
            label=label,
        )
        axes.fill_between(
            epochs, losses.min(0), losses.max(0), color=colour, alpha=0.15, linewidth=0
        )
    axes.set(xlabel="epoch", ylabel="training loss", title="Capsule-B on Reuters")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend()
    paths = [folder / "figure3.svg", folder / "figure3.png"]
    # The same records give the same bytes: no time, no drawn names.
    with rc_context({"svg.hashsalt": "figure3"}):
        for path in paths:
            with atomic_path(path) as temporary:
                kind = path.suffix[1:]
                meta = {"Date": None} if kind == "svg" else {}
                figure.savefig(temporary, format=kind, dpi=150, metadata=meta)
    return paths
