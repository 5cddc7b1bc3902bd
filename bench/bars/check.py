"""One bar in one cell: a figure, the bound it is held against, and how they came out."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    """`figure` must be at most `bound`, or at least where `at_least`; `bound_is` says what the bound is made of.

    `best_peer` is who comes next to it, and with what.
    """

    bar: int
    cell: str
    what: str
    figure: float
    bound: float
    bound_is: str
    best_peer: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the bar is cleared."""
        return self.figure >= self.bound if self.at_least else self.figure <= self.bound

    def line(self) -> str:
        """As printed."""
        sign = "≥" if self.at_least else "≤"
        verdict = "ok" if self.met else "MISSED"
        judged = f"{self.what} {self.figure:.3f} {sign} {self.bound:.3f} ({self.bound_is})"
        return f"{self.bar}  {self.cell:<40} {judged:<66} {self.best_peer:<34} {verdict}"
