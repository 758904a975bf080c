"""Declares the settings of access control."""

from typing import Final

from kalda.common.config_def import one_of
from kalda.common.settings import LOW, Settings, boolean, string

ACL_AUTHORIZERS: Final = (
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)
"""Kafka's authorizers that keep ACLs in ZooKeeper. The second is the name before 2.4."""


class AccessConfig(Settings):
    """The settings of authorization."""

    allow_everyone_if_no_acl_found = boolean(
        False, "Whether everyone may use a resource to which no ACL applies.", internal=True
    )
    authorizer_class_name = string(
        "",
        f"`{ACL_AUTHORIZERS[0]}` to check ACLs, which are kept in ZooKeeper in Kafka's layout; empty to let "
        "every client do everything.",
        one_of("", *ACL_AUTHORIZERS),
        importance=LOW,
    )
    super_users = string(
        "",
        "Principals that may do everything, separated by semicolons: `User:admin;User:broker`.",
        internal=True,
    )
