"""What this machine needs to move an expert: measured once, kept in a JSON file, never typed in."""

from stickymoe.cache.calibration.files import load_calibration, save_calibration
from stickymoe.cache.calibration.measure import calibrate
from stickymoe.cache.calibration.record import Calibration, CalibrationError, Link, Spread

__all__ = [
    "Calibration",
    "CalibrationError",
    "Link",
    "Spread",
    "calibrate",
    "load_calibration",
    "save_calibration",
]
