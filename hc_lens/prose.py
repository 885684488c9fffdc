"""Numbers in sentences: percentages, points, p-values, counts and lists, as every page and every command writes them."""

import math

MINUS = "\N{MINUS SIGN}"


def percent(share: float, digits: int = 1) -> str:
    """A share as a percentage, with one decimal unless told: `98.1 %`."""
    return f"{100 * share:.{digits}f} %"


def sparsity(share: float) -> str:
    """A sparsity as a whole percentage: `50 % sparsity`."""
    return f"{100 * share:.0f} % sparsity"


def points(difference: float) -> str:
    """A difference of shares in percentage points: `12.3 points`."""
    return f"{100 * difference:.1f} points".replace("-", MINUS)


def p_text(value: float) -> str:
    """A p-value with two significant digits, one where it is tiny: `0.041`, `2e-5`."""
    return f"{value:.2g}" if value >= 1e-4 else f"{value:.0e}".replace("e-0", "e-")


def in_points(interval: tuple[float, float]) -> str:
    """An interval of shares in points, or why there is none: `(95 % interval 1.0 to 2.0)`."""
    low, high = interval
    if not math.isfinite(low):
        return "(fewer than 3 values: no interval)"
    return f"(95 % interval {100 * low:.1f} to {100 * high:.1f})".replace("-", MINUS)


def listed(items: list[str], most: int = 12) -> str:
    """`a, b and c`; beyond `most`, the rest is counted."""
    if len(items) > most:
        items = [*items[:most], f"{len(items) - most} more"]
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else "none"


def counted(number: int, noun: str) -> str:
    """`1 head`, `3 heads`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
