"""What the page cache is left with."""

import pytest

from stickymoe.cache.cost import available_ram_bytes, page_cache_share, ram, starvation_warning

GIB = 2**30
MODEL = {"ram_bytes": 16 * GIB, "model_bytes": 40 * GIB, "demand_bytes": GIB, "other_bytes": 4 * GIB}


def test_a_cache_that_leaves_room_is_not_warned_of():
    assert starvation_warning(11 * GIB, **MODEL) is None
    assert starvation_warning(0, **MODEL) is None


def test_a_cache_that_leaves_less_than_a_token_asks_for_starves_the_page_cache():
    warning = starvation_warning(11 * GIB + 1, **MODEL)
    assert warning is not None
    assert "1.00 GiB left for 29.00 GiB of uncached experts, less than the 1.00 GiB one token asks for" in warning
    assert "\n" not in warning


def test_a_cache_that_does_not_fit_would_swap():
    assert "does not fit: 13.00 GiB cache + 4.00 GiB other > 16.00 GiB" in (starvation_warning(13 * GIB, **MODEL) or "")


def test_a_model_cached_whole_needs_no_page_cache():
    assert starvation_warning(12 * GIB, **(MODEL | {"model_bytes": 12 * GIB})) is None


def test_the_share_of_the_rest_that_the_page_cache_holds():
    sizes = {"ram_bytes": 16 * GIB, "model_bytes": 40 * GIB}
    assert page_cache_share(0, **sizes) == pytest.approx(0.4)
    assert page_cache_share(10 * GIB, **sizes) == pytest.approx(0.2)
    assert page_cache_share(20 * GIB, **sizes) == 0
    assert page_cache_share(40 * GIB, **sizes) == 1


@pytest.mark.parametrize(
    ("meminfo", "limit", "used", "expected"),
    [
        ("MemTotal: 9 kB\nMemAvailable:   1000 kB\n", "max", "5", 1_024_000),
        ("MemAvailable: 1000 kB\n", "600000", "100000", 500_000),
        ("MemAvailable: 1000 kB\n", "100", "600", 0),
        ("MemAvailable: 1000 kB\n", None, None, 1_024_000),
    ],
)
def test_the_least_of_what_the_system_and_the_control_group_allow(
    tmp_path, monkeypatch, meminfo, limit, used, expected
):
    (tmp_path / "meminfo").write_text(meminfo)
    for name, text in (("memory.max", limit), ("memory.current", used)):
        if text is not None:
            (tmp_path / name).write_text(text)
    monkeypatch.setattr(ram, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(ram, "CGROUP", tmp_path)
    assert available_ram_bytes() == expected


def test_without_a_list_of_memory_the_physical_one_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(ram, "MEMINFO", tmp_path / "none")
    monkeypatch.setattr(ram, "CGROUP", tmp_path)
    assert (available_ram_bytes() or 0) > 2**20
    (tmp_path / "odd").write_text("MemAvailable:\n")
    monkeypatch.setattr(ram, "MEMINFO", tmp_path / "odd")
    assert (available_ram_bytes() or 0) > 2**20
