"""Numbers as readers see them."""

from __future__ import annotations

import pytest

from stickymoe.experiments.formatting import duration, fixed, millions, percent, signed_percent, times


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (signed_percent(0.0631), "+6.3 %"),
        (signed_percent(-0.0631), "\N{MINUS SIGN}6.3 %"),
        (signed_percent(-0.0001), "0.0 %"),
        (percent(-0.2), "\N{MINUS SIGN}20 %"),
        (percent(None), "\N{EN DASH}"),
        (fixed(-0.0001), "0.00"),
        (times(0.4888), "0.49\N{MULTIPLICATION SIGN}"),
        (millions(9_999), "9,999"),
        (millions(1_840_000), "1.84 M"),
        (duration(4.21), "4.2 s"),
        (duration(441), "7 min 21 s"),
        (duration(7500), "2 h 05 min"),
    ],
)
def test_written_numbers(written, expected):
    assert written == expected
