"""Declares a share consumer's settings with Kafka's names and defaults (those of Kafka 4.2).

Where a group begins, its isolation level and the time of its locks are settings of the group, not of its
consumers. `ShareConsumerOptions` types the same settings as keyword arguments.
"""

from typing import Final, Literal

from kalda.clients.config.reader_config import ReaderConfig, ReaderOptions
from kalda.clients.errors import ClientConfigError
from kalda.common.config_def import one_of
from kalda.common.public import public
from kalda.common.settings import HIGH, LOW, string
from kalda.runtime.system.runtime import client_runtime

_EXPLICIT: Final = "explicit"
_STRICT: Final = "record_limit"

AcknowledgementMode = Literal["implicit", "explicit"]
AcquireMode = Literal["batch_optimized", "record_limit"]


@public
class ShareConsumerOptions(ReaderOptions, total=False):
    """The settings as keyword arguments; `ShareConsumerConfig` documents them."""

    group_id: str
    share_acknowledgement_mode: AcknowledgementMode
    share_acquire_mode: AcquireMode


class ShareConsumerConfig(ReaderConfig):
    """The settings of a share consumer."""

    group_id = string(
        "", "The share group that this consumer belongs to. There is no default.", importance=HIGH
    )
    client_rack = string("", "The rack of this consumer, for the group's assignor.", importance=LOW)
    share_acknowledgement_mode = string(
        "implicit",
        "Whether the next poll accepts the records of the last one (implicit), or the program acknowledges "
        "each record (explicit).",
        one_of("implicit", _EXPLICIT),
        importance=HIGH,
    )
    share_acquire_mode = string(
        "batch_optimized",
        "Whether a fetch acquires whole batches of the producer, which may be more records than "
        "the poll returns (batch_optimized), or no more than that (record_limit, KIP-1206). With "
        "record_limit slow records are shared more evenly among the members.",
        one_of("batch_optimized", _STRICT),
    )

    @property
    def is_explicit(self) -> bool:
        """Whether the program acknowledges each record."""
        return self.share_acknowledgement_mode == _EXPLICIT

    @property
    def is_strict(self) -> bool:
        """Whether a fetch acquires no more records than one poll returns."""
        return self.share_acquire_mode == _STRICT

    def check_rules(self) -> None:
        """Check the rules between settings, and fill in `client.id`.

        Raises:
            ClientConfigError: as `CommonClientConfig.check_rules`; or `group.id` is missing.
        """
        super().check_rules()
        if not self.group_id.strip():
            raise ClientConfigError("`group.id` is missing; set it to the name of the share group")
        if not self.client_id:
            number = client_runtime().client_numbers.next("consumer")
            vars(self)["client_id"] = f"consumer-{self.group_id}-{number}"
