"""Thin tasks around the core: resolve paths, call rlcr_core and envs, write, return paths and digests.

    runtime        environment variables of Prefect, Ray and MLflow; threads
    paths          where everything lies: artifacts of DVC stages, working state of runs
    task_sets      task files (one JSON object a line)
    base_policy    the base: the kept checkpoint, or retrained
    chat_base, demonstrations  a chat model's base: random valid calls to learn the grammar from, measured, gated
    models, model_checks  where a base chat model comes from, and what is refused
    engines        which engine a worker owns: torch, vLLM, a server elsewhere
    identity       what a training run depends on; its folder's name
    plan           which tasks, seeds and limit an iteration has
    learner        the policy being trained, with its optimiser, and its checkpoints
    workers        Ray: the pool of rollout workers (the only module that imports ray)
    probe          logprobs of fixed ids that trainer and workers must agree on
    weight_sync    the same weights on every worker, proved by digest, version and probe
    rollouts       run, retry once, store
    validation     Great Expectations: the contract of the trajectory tables (the only module that imports it)
    rejection      set aside what breaks the contract, keep the ledger
    update         one step of the policy on an iteration's rollouts
    training       the order of an iteration's stages
    history        finished iterations, metrics.jsonl, curves.csv
    organisations  ways to work on the same tasks: baselines and controls
    evaluation     rollouts for evaluation, and a training run's own check
    grid           organisation x limit x family x seed, each cell run once; scripted: cells without a policy
    intervals      intervals as params.yaml wants them, and as fields of a row
    comparison     means, paired differences, curves and crossing time of an evaluation
    evidence, evidence_figures  other limits and families, matched tokens, attempts, latency and token curves
    studies, lanes trainings behind the table of claims, side by side
    claims, claims_*, verdicts  the table of claims
    city, city_*   the trained policy with many more agents
    tracking       MLflow (with traces, spans, registry, evaluation_runs the only modules that import it)
    timings        where the seconds of an iteration go
    progress       a live bar on a terminal, plain lines elsewhere
    announce       Prefect artifacts at the end of a flow
    lifeline       the embedded Prefect server ends with this process
    table          the evaluation in the terminal
    workflow_comparison, workflow_table  one agent, independent attempts and the collective to an acceptable result
    message_values, value_table  what messages were worth, by counterfactual replay
    warm_start     clones the environment's random valid actions, measures the base, gates it
    trajectory_frames  derived columns that validation checks
    report_data    reads what the report shows
    findings       what the evaluation carries, in words
    figure_style, figures, timeline  the pictures
    transcript     a rollout to be read, turn by turn
    viewer, viewer_data, viewer_texts  a rollout to look around in: one HTML file (its style and scripts: viewer_page/)
    reporting      assembles the report
    calibration    derived against measured time
    doctor, doctor_*  checks of the machine
    workspace      a folder that runs the pipeline with another parameter file

A stage is done when its manifest is on disk; a stage that finds a valid one returns it. Deadlines live in the rollout
code and in the workers, never in an orchestrator. To add a stage: a function that takes the iteration's folder and
writes a manifest, and one line in tasks/training.py.
"""
