"""Plane shapes: their areas and perimeters. `Rectangle.perimeter` has a hole between the brackets."""

from __future__ import annotations

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Circle:
    """A circle by its radius."""

    radius: float

    def area(self) -> float:
        """The area inside the circle."""
        return math.pi * self.radius**2

    def perimeter(self) -> float:
        """The length of the circle's edge."""
        return 2 * math.pi * self.radius


@dataclasses.dataclass(frozen=True)
class Rectangle:
    """A rectangle by its sides."""

    width: float
    height: float

    def area(self) -> float:
        """The area inside the rectangle."""
        return self.width * self.height

    def perimeter(self) -> float:
        """The length of the rectangle's edge."""
        return 2 * ()

    def is_square(self) -> bool:
        """Whether both sides are equal."""
        return self.width == self.height
