"""What people put around a model: low precision, PEFT, data parallelism."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from stickymoe.capture import capture_routing
from stickymoe.capture.tiny import tiny_model
from stickymoe.core.errors import CaptureError
from stickymoe.losses import Objective

RANKS = Path(__file__).with_name("ranks.py")


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss"])
def test_gates_of_a_bfloat16_model_are_float32_and_carry_gradients(token_ids, family):
    model = tiny_model(family).to(torch.bfloat16)
    with capture_routing(model) as capture:
        model(token_ids(2, 5))
    routing = capture.routing
    for logits, gates in zip(routing.router_logits, routing.gate_probs, strict=True):
        assert gates.dtype == torch.float32
        torch.testing.assert_close(gates.sum(-1), torch.ones(2, 5), rtol=1e-6, atol=1e-6)
        exact = logits.double().sigmoid() if family == "deepseek_v3" else logits.double().exp()
        torch.testing.assert_close(gates.double(), exact / exact.sum(-1, keepdim=True), rtol=1e-5, atol=1e-7)
    Objective(consistency=1.0)(routing).total.backward()
    gate = next(p for name, p in model.named_parameters() if name.endswith(("gate.weight", "router.weight")))
    assert gate.grad.dtype == gate.dtype
    assert gate.grad.abs().sum() > 0


def test_under_autocast_gates_are_float32(build, token_ids):
    model = build("mixtral")
    with torch.autocast("cpu", dtype=torch.bfloat16), capture_routing(model) as capture:
        model(token_ids(1, 4))
        gates = capture.routing.gate_probs[0]
    assert gates.dtype == torch.float32


@pytest.mark.filterwarnings("ignore::FutureWarning")  # PEFT asks transformers by a deprecated name
@pytest.mark.parametrize("setup", ["attention", "router copied", "router parameter"])
@pytest.mark.parametrize("attach_first", [False, True])
def test_peft_around_the_model_is_seen_through(token_ids, setup, attach_first):
    peft = pytest.importorskip("peft")
    model = tiny_model("mixtral")
    expected_layers = model.config.num_hidden_layers
    config = {
        "attention": {"target_modules": ["q_proj"]},
        "router copied": {"target_modules": ["q_proj"], "modules_to_save": ["gate"]},
        "router parameter": {"target_parameters": ["gate.weight"]},
    }[setup]
    if attach_first and setup != "attention":
        pytest.skip("PEFT replaces the router, so hooks come after it")
    early = capture_routing(model) if attach_first else None
    wrapped = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **config))
    capture = early or capture_routing(wrapped)
    ids = token_ids(1, 5)
    recorded = wrapped(input_ids=ids, output_router_logits=True).router_logits
    routing = capture.routing
    assert routing.num_layers == expected_layers
    for logits, captured in zip(recorded, routing.router_logits, strict=True):
        assert torch.equal(logits, captured[0])
    Objective(consistency=1.0)(routing).total.backward()
    trained = {name for name, p in wrapped.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert any("lora" in name or "modules_to_save" in name for name in trained)


def test_two_ranks_have_the_gradient_of_the_whole_batch(tmp_path):
    command = [sys.executable, str(RANKS), str(tmp_path / "store")]
    ranks = [
        subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    results = [rank.communicate(timeout=120) for rank in ranks]
    assert [out.strip() for out, _ in results] == ["equal", "equal"], results[0][1] + results[1][1]


def test_replicas_of_nn_dataparallel_are_refused(build, token_ids):
    model = build("mixtral")
    with capture_routing(model):
        model.model._is_replica = True
        with pytest.raises(CaptureError, match="use DistributedDataParallel"):
            model(token_ids(1, 3))
