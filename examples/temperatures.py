"""Daily temperatures of a weather station. `warmest_day` has a hole: the variables of its loop."""

from __future__ import annotations

from collections.abc import Mapping


def to_fahrenheit(celsius: float) -> float:
    """Convert degrees Celsius to degrees Fahrenheit."""
    return celsius * 9 / 5 + 32


def coldest_day(celsius_by_day: Mapping[str, float]) -> str:
    """The day with the lowest temperature."""
    coldest = ""
    for day, celsius in celsius_by_day.items():
        if not coldest or celsius < celsius_by_day[coldest]:
            coldest = day
    return coldest


def warmest_day(celsius_by_day: Mapping[str, float]) -> str:
    """The day with the highest temperature."""
    warmest = ""
    for  in celsius_by_day.items():
        if not warmest or celsius > celsius_by_day[warmest]:
            warmest = day
    return warmest


def swing(celsius_by_day: Mapping[str, float]) -> float:
    """The difference between the highest and the lowest temperature."""
    return max(celsius_by_day.values()) - min(celsius_by_day.values())
