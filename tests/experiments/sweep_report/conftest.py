"""Sweeps of invented rows, whole or with changes, and their reports."""

import importlib.util
from pathlib import Path

import pytest


def load(name):
    spec = importlib.util.spec_from_file_location(f"stickymoe_tests_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def invented():
    """The module that invents rows."""
    return load("invented")


@pytest.fixture(scope="session")
def both_sizes(invented):
    """All variants at both sizes with three seeds. Not to be changed by a test."""
    from stickymoe.experiments.sweep_report.rows import sweep_of

    return sweep_of(invented.invented_rows(("small", "medium")))


@pytest.fixture
def summary(invented):
    """A function: by variant what differs from the invented shape -> summary of the small size."""
    from stickymoe.experiments.sweep_report.rows import sweep_of
    from stickymoe.experiments.sweep_report.summary import summarise_size

    def make(changes=None, *, seeds=(42, 43, 44), without=(), size="small"):
        changes = changes or {}
        rows = [
            invented.invented_row(size, seed, name, **changes[name])
            if name in changes
            else invented.usual_row(size, seed, name)
            for seed in seeds
            for name in invented.SHAPE
            if name not in without
        ]
        return summarise_size(sweep_of(rows), size)

    return make


@pytest.fixture
def written(invented, tmp_path):
    """A function: rows -> a sweep's folder that holds them."""
    from stickymoe.experiments.sweeps.rows import write_row

    def write(rows, folder="sweep"):
        for row in rows:
            write_row(row, tmp_path / folder)
        return tmp_path / folder

    return write
