"""The colours of the reports, as the page's style sheet reads them."""

from textcapsules.explain.palette import DARK, LIGHT, Theme

__all__ = ["colour_sheet"]


def colour_sheet() -> str:
    """Return a style sheet of custom properties, light and dark."""
    dark = f"@media (prefers-color-scheme: dark) {{ {properties(DARK)} }}"
    return f"{properties(LIGHT)}\n{dark}\n"


def properties(theme: Theme) -> str:
    """Return one theme's colours: `--ink` and so on, `--label-0` and so on."""
    named = {name: value for name, value in theme._asdict().items() if name != "labels"}
    named |= {f"label-{place}": value for place, value in enumerate(theme.labels)}
    return f":root {{ {' '.join(f'--{k}: {v};' for k, v in named.items())} }}"
