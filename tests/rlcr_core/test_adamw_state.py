"""A small linear layer shows that the state is complete, copied, and refused when it is not this policy's."""

import pytest
import torch

from rlcr_core.adamw_state import export_state, import_state
from rlcr_core.errors import DataError


def make():
    torch.manual_seed(0)
    layer = torch.nn.Linear(2, 3)
    return layer, dict(layer.named_parameters()), torch.optim.AdamW(layer.parameters(), lr=0.1, betas=(0.9, 0.99))


def step(layer, optimizer, scale):
    optimizer.zero_grad()
    (layer(torch.ones(1, 2)).sum() * scale).backward()
    optimizer.step()


def test_names_and_values_after_one_step():
    layer, parameters, optimizer = make()
    assert export_state(optimizer, parameters) == {}
    step(layer, optimizer, 2.0)
    state = export_state(optimizer, parameters)
    names = [f"{slot}.{name}" for slot in ("exp_avg", "exp_avg_sq", "step") for name in ("bias", "weight")]
    assert list(state) == names
    # The gradient is 2 everywhere: moments (1 - 0.9) * 2 and (1 - 0.99) * 4.
    assert state["exp_avg.bias"].tolist() == pytest.approx([0.2] * 3)
    assert state["exp_avg_sq.bias"].tolist() == pytest.approx([0.04] * 3)
    assert state["step.bias"].item() == 1.0


def test_a_resumed_optimiser_goes_on_bit_for_bit():
    layer, parameters, optimizer = make()
    step(layer, optimizer, 2.0)
    other, other_parameters, other_optimizer = make()
    other.load_state_dict(layer.state_dict())
    import_state(other_optimizer, other_parameters, export_state(optimizer, parameters))
    for scale in (-1.0, 3.0):
        step(layer, optimizer, scale)
        step(other, other_optimizer, scale)
    assert torch.equal(layer.weight, other.weight) and torch.equal(layer.bias, other.bias)


def test_the_exported_state_is_a_copy():
    layer, parameters, optimizer = make()
    step(layer, optimizer, 2.0)
    state = export_state(optimizer, parameters)
    import_state(optimizer, parameters, state)
    step(layer, optimizer, 2.0)
    assert state["step.bias"].item() == 1.0
    assert state["exp_avg.bias"].tolist() == pytest.approx([0.2] * 3)


@pytest.mark.parametrize("fault", ["missing", "shape", "nan", "unknown"])
def test_state_of_another_policy_is_refused_and_changes_nothing(fault):
    layer, parameters, optimizer = make()
    step(layer, optimizer, 2.0)
    state = export_state(optimizer, parameters)
    wrong = {
        "missing": {name: value for name, value in state.items() if name != "exp_avg.bias"},
        "shape": state | {"exp_avg.bias": torch.zeros(4)},
        "nan": state | {"exp_avg.bias": torch.full((3,), float("nan"))},
        "unknown": state | {"exp_avg.other": torch.zeros(3)},
    }[fault]
    with pytest.raises(DataError, match=r"exp_avg\.(bias|other) is missing, unknown, not finite or of another shape"):
        import_state(optimizer, parameters, wrong)
    after = export_state(optimizer, parameters)
    assert all(torch.equal(after[name], state[name]) for name in state)
