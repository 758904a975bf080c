"""Defines the errors after which a pipeline is never restarted, or is restarted without a limit."""


class PipelineStoppedError(Exception):
    """A pipeline stopped; the message says why and what to do. The supervisor does not restart it."""


class NotThereYetError(Exception):
    """A topic or table that a pipeline reads does not exist yet. The supervisor retries without a limit."""


class BreakerOpenError(PipelineStoppedError):
    """Too large a share of a batch is bad; nothing of it was written."""


class PoisonBatchError(PipelineStoppedError):
    """The same batch failed as often as the file allows."""


class ProgressLostError(PipelineStoppedError):
    """The position at which the pipeline resumes is unknown; the message gives the repair."""


class SourceLostError(PipelineStoppedError):
    """Records that the pipeline has not read are gone, and `failOnDataLoss` is true."""


class SparkEndedError(PipelineStoppedError):
    """The Java virtual machine of the Spark application ended while pipelines ran."""
