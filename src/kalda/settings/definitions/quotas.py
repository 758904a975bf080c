"""Declares the settings of quotas; the quotas themselves are set for users, client ids and addresses."""

from kalda.common.config_def import at_least
from kalda.common.settings import LOW, Settings, integer


class QuotaConfig(Settings):
    """The settings of the measurement of quotas."""

    controller_quota_window_num = integer(
        11, "Samples kept for the quota on changes of the cluster.", at_least(1), importance=LOW
    )
    controller_quota_window_size_seconds = integer(
        1, "Length of one sample of the quota on changes of the cluster.", at_least(1), importance=LOW
    )
    quota_window_num = integer(11, "Samples kept for client quotas.", at_least(1), importance=LOW)
    quota_window_size_seconds = integer(
        1, "Length of one sample of client quotas.", at_least(1), importance=LOW
    )
