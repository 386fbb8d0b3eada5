"""Errors that cross a boundary of the project; each message says what, got, expected, and which knob to change."""


class RLCRError(Exception):
    """Base of every error that a user of the pipeline is meant to read."""


class ConfigError(RLCRError):
    """params.yaml holds an unknown key, an impossible value or an impossible combination."""


class TaskError(RLCRError):
    """A task file or a task's spec cannot be used."""


class EnvironmentFault(RLCRError):
    """An environment raised or broke its protocol; the rollout becomes `failed`, its siblings go on."""


class EngineFault(RLCRError):
    """The sampling engine died or broke its protocol; the rollout becomes `failed`, its siblings go on."""


class WeightError(RLCRError):
    """Weights with a wrong digest, non-finite values, or a probe that disagrees after a sync; the run stops."""


class DataError(RLCRError):
    """A trajectory, a manifest or a checkpoint on disk is incomplete, inconsistent or not finite."""


class StoreError(RLCRError):
    """A file or a store (disk, MLflow) cannot be written or read."""


class GateError(RLCRError):
    """A policy is too weak to start from, or too many rollouts of an iteration were excluded."""


class StageError(RLCRError):
    """A stage that ran as a process of its own ended with an error, which it has said itself."""
