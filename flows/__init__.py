"""The pipeline's entry points; each is one DVC stage and one process: `python -m flows.<name> --help`.

    tasks      task sets: artifacts/tasks/{train,validation,test}.jsonl
    schedule   the time limit of every iteration: artifacts/schedule.csv
    base       the base policy and its gate: artifacts/base/
    train      one training run (Prefect flow): artifacts/train/<mode>-<seed>/
    evaluate   organisations on the test tasks (Prefect flow): artifacts/evaluation/
    table      prints the last evaluation again
    view       one rollout to look around in: a single HTML file
    report     one HTML file and its pictures: artifacts/report/
    serve      train and evaluate on a schedule, against a running Prefect server
    workspace  the whole pipeline with another parameter file, in a folder of its own
    calibrate  fit the derived clock's constants to this machine
    claims     every study behind docs/claims.md, and the table
    city       the trained policy with up to 1,000 agents: artifacts/city/
    compare    workflows: time, calls and tokens to an acceptable result: artifacts/compare/
    values     what single messages were worth, by counterfactual replay
    doctor     what this machine can run, and what to do about the rest

The environment is prepared here because it must be complete before any of these modules imports its tools.
"""

from tasks.runtime import keep_memory, prepare

prepare()
keep_memory()
