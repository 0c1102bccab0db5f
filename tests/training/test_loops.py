"""`StickyObjective` in loops that divide the loss themselves: Accelerate and Lightning."""

import accelerate
import pytest
import torch
from torch.utils.data import DataLoader

from stickymoe.training import StickyObjective

pytestmark = pytest.mark.hf


@pytest.fixture
def expected(step):
    return step.row_by_row(step.build("mixtral"), step.ragged_rows())


def test_accelerates_accumulation_has_the_gradient_of_the_rows(step, expected):
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = step.build("mixtral")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(step.ragged_rows(), batch_size=2, collate_fn=step.padded)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    sticky = StickyObjective(step.OBJECTIVE)
    sticky.attach(model)
    batches = list(loader)
    sticky.begin_step(batches)
    targets = sum(int((batch["labels"][:, 1:] != -100).sum()) for batch in batches)
    for batch in batches:
        with accelerator.accumulate(model):
            loss = model(**batch, num_items_in_batch=targets).loss + sticky.loss()
            # The losses add up to the step's, so what accelerate divides by is put back
            accelerator.backward(loss * accelerator.gradient_accumulation_steps)
    torch.testing.assert_close(step.gradients(model), expected, rtol=1e-3, atol=2e-6)


@pytest.mark.filterwarnings("ignore:.*treespec.*:FutureWarning")
def test_lightning_trains_with_the_terms(step, expected, tmp_path):
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = step.build("mixtral")
            self.sticky = StickyObjective(step.OBJECTIVE)
            self.sticky.attach(self.model)

        def training_step(self, batch, index):
            return self.model(**batch).loss + self.sticky.loss()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

        def on_before_optimizer_step(self, optimizer):
            self.found = step.gradients(self.model)

    module = Module()
    loader = DataLoader(step.ragged_rows(), batch_size=4, collate_fn=step.padded)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    lightning.Trainer(max_steps=1, accelerator="cpu", default_root_dir=str(tmp_path), **quiet).fit(module, loader)
    torch.testing.assert_close(module.found, expected, rtol=1e-3, atol=2e-6)
