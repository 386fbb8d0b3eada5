"""The core: types, clock, collective, rollout loop, advantage and loss, policy and engines; and the evaluation of collectives.

Words and settings
    types, errors, config, seeds, tokens, schedule
A rollout
    clock, collective, roster, rollout, harness, chat/, wall, wall_agents, wall_moments, lanes, virtual_time
    players, scripted    scripted players through the same loop; replay: the same rollout without one message
Learning
    advantages, contexts, labels, packing, losses, update, lora, masters, adamw_state
    policy, lfm2, llama, vocabulary, weights, engines/, base, supervised
On disk
    store, manifests, ledger
What a rollout shows
    facts, outcomes, signs, metrics
What an evaluation shows (docs/statistics.md)
    statistics, across_seeds, precision, ratios, censoring     means, differences, intervals, how many tasks
    time_to_score, token_budget, matched_tokens, rescoring, frontier, attempts, workflows
    scalability, throughput_fit, divergence                    many agents
    calibration                                                derived against measured time

To add an estimator of advantages: rlcr_core/advantages.py; an engine: rlcr_core/engines/; a sign of life: rlcr_core/signs.py.
"""
