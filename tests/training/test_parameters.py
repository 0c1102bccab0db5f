"""Parameter counts, total and active."""

from stickymoe.training.parameters import count_parameters


def test_active_parameters_are_those_of_the_model_with_only_k_experts_and_the_full_router(tiny):
    sparse, dense = count_parameters(tiny.model()), count_parameters(tiny.model(num_experts=2))
    assert sparse["total"] == sum(weight.numel() for weight in tiny.model().parameters())
    idle_router_rows = 2 * 2 * 8  # layers x experts x hidden: the router scores idle experts too
    assert sparse["active"] == dense["total"] + idle_router_rows
    assert dense["active"] == dense["total"]


def test_the_tied_embedding_is_counted_once(tiny):
    model = tiny.model()
    assert model.lm_head.weight is model.model.token_embedding.weight
    named = dict(model.named_parameters(remove_duplicate=True))
    assert count_parameters(model)["total"] == sum(weight.numel() for weight in named.values())


def test_of_a_shared_pool_a_token_uses_at_most_k_experts_a_layer(tiny):
    expert = 8 * 8 + 8 + 8 * 8 + 8  # width x hidden and biases
    sizes = {"num_hidden_layers": 2, "num_experts": 7, "experts_shared": "all"}
    counts = count_parameters(tiny.model(**sizes))
    assert counts["total"] - counts["active"] == (7 - 2 * 2) * expert
    few = count_parameters(tiny.model(**(sizes | {"num_experts": 3})))
    assert few["active"] == few["total"], "two layers of two experts each can use all three"
    own = count_parameters(tiny.model(num_hidden_layers=2, num_experts=7))
    assert own["total"] - counts["total"] == 7 * expert
