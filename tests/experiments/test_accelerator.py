"""Finding an accelerator without loading torch where there is none."""

import subprocess
import sys

import pytest

from stickymoe.core.errors import SettingError
from stickymoe.experiments import accelerator


def test_without_a_driver_torch_is_not_even_imported():
    code = (
        "import sys\n"
        "from stickymoe.experiments import accelerator\n"
        "accelerator.DRIVERS = ()\n"
        "assert accelerator.find_accelerator('auto', 1024) is None\n"
        "assert accelerator.find_accelerator('none', 1024) is None\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_device_that_is_asked_for_and_not_there_is_refused():
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(SettingError, match="--device none"):
        accelerator.find_accelerator("cuda", 1024)


@pytest.mark.gpu
def test_copies_and_products_take_time():
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    found = accelerator.find_accelerator("auto", 2**20)
    assert found.copy(2**20) > 0
    assert found.copy(4096) > 0
    assert found.matmul() > 0
