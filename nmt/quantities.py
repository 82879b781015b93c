"""Quantities as text: sizes in bytes, durations, floating-point operations."""

from typing import Final

PREFIXES: Final = {"E": 1e18, "P": 1e15, "T": 1e12, "G": 1e9}


def size(number: int) -> str:
    """A number of bytes as text."""
    return f"{number / 1e9:.2f} GB" if number >= 1e8 else f"{number / 1e6:.1f} MB"


def clock(seconds: float) -> str:
    """A duration as hours:minutes:seconds."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def duration(hours: float) -> str:
    """Hours as text, in minutes or days if that reads better."""
    return f"{hours / 24:.1f} days" if hours >= 48 else f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.1f} min"


def operations(number: float) -> str:
    """A number of floating-point operations as text, with a suitable prefix."""
    prefix = next((prefix for prefix, size in PREFIXES.items() if number >= size), "G")
    count = number / PREFIXES[prefix]
    return f"{count:,.0f} {prefix}FLOP" if count >= 100 else f"{count:.3g} {prefix}FLOP"
