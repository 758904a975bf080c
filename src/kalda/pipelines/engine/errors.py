"""Errors that decide whether a pipeline starts again: never, or however often it takes."""


class PipelineStoppedError(Exception):
    """A pipeline stopped; the message says why and what to do. The supervisor does not restart it."""


class NotThereYetError(Exception):
    """What a pipeline reads does not exist yet. The supervisor looks again, however often that takes."""


class BreakerOpenError(PipelineStoppedError):
    """Too large a share of a batch is bad; nothing of it was written."""


class PoisonBatchError(PipelineStoppedError):
    """The same batch failed as often as the file allows."""


class ProgressLostError(PipelineStoppedError):
    """Nothing says reliably where the pipeline goes on; the message says how to mend that."""


class SourceLostError(PipelineStoppedError):
    """Records that the pipeline has not read are gone, and `failOnDataLoss` is true."""


class SparkEndedError(PipelineStoppedError):
    """The Java virtual machine of the Spark application ended beneath the pipelines."""
