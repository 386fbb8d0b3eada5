"""The core: types, clock, collective, rollout loop, advantage and loss, policy and engines."""
