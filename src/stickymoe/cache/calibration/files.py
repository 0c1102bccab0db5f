"""A calibration as a JSON file: written whole, read with bounds and checked to the last number."""

import json
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from stickymoe.cache.calibration.record import VERSION, Calibration, CalibrationError
from stickymoe.core.errors import SettingError
from stickymoe.core.files import read_json, write_json

MAX_BYTES = 2**20


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Write `calibration` to `path`.

    Raises:
        StorageError: The disk refuses the write; what stood there before still stands.
    """
    write_json(path, {"format": "stickymoe.calibration"} | asdict(calibration))


def load_calibration(path: Path) -> Calibration:
    """Read the calibration at `path`, trusting nothing in it.

    Raises:
        CalibrationError: No such file, too large, not a calibration, of another version, or a rule is broken; the
            message names the file and the first fault.
    """
    content = read_json(path, CalibrationError, "calibrate again", most_bytes=MAX_BYTES)
    if content.pop("format", None) != "stickymoe.calibration":
        raise CalibrationError(f"{path} must be a calibration file; `stickymoe calibrate` makes one")
    if content.get("version") != VERSION or type(content.get("version")) is not int:
        found = repr(content.get("version"))[:50]
        raise CalibrationError(f"{path}: the format version must be {VERSION}, got {found}; calibrate again")
    try:
        return TypeAdapter(Calibration).validate_json(json.dumps(content))
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"]) or "content"
        rule = fault["msg"].removeprefix("Value error, ")
        found = f", got {str(fault['input'])[:60]!r}" if fault["type"] != "value_error" else ""
        raise CalibrationError(f"{path}: {' '.join(f'{where}: {rule}{found}'.split())}; calibrate again") from None
    except SettingError as error:
        raise CalibrationError(f"{path}: {error}; calibrate again") from None
