"""Opens a broker's session with etcd, from the settings ``coordination.connect`` and ``etcd.*``.

The access lists of ZooKeeper have no counterpart: etcd permits ranges of keys to users. So with
``zookeeper.set.acl`` a broker needs an identity, and starts only where etcd refuses everybody else.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from kalda.broker.process.errors import ProcessError
from kalda.etcd.address import EtcdAddress, parse_etcd_address, split_scheme
from kalda.etcd.link import OpenLink
from kalda.etcd.security import EtcdSecurity, EtcdSettingsError, read_etcd_security
from kalda.settings import BrokerConfig
from kalda.zookeeper.errors import ZooKeeperError

if TYPE_CHECKING:
    from kalda.broker.process.faulty_machine import FaultyMachine
    from kalda.etcd.client import EtcdClient

logger: Final = logging.getLogger(__name__)

_MISSING: Final = "etcd needs the library grpcio, which is not installed: run pip install 'kalda[etcd]'"


async def connect_etcd(config: BrokerConfig, machine: "FaultyMachine | None" = None) -> "EtcdClient":
    """Open a session with the etcd servers of ``coordination.connect``, over the links of `machine`.

    Raises:
        ProcessError: they do not answer in time, a setting is not valid, or grpcio is not installed.
    """
    try:
        from kalda.etcd.client import EtcdClient
        from kalda.etcd.connection import grpc_links
    except ImportError:
        raise ProcessError(_MISSING) from None
    _, address = split_scheme(config.coordination_connect or "")
    session_timeout_ms = config.zookeeper_session_timeout_ms
    connection_timeout_ms = config.zookeeper_connection_timeout_ms or session_timeout_ms
    try:
        security = read_etcd_security(config.value)
        if config.zookeeper_set_acl:
            await _require_closed(parse_etcd_address(address), security, connection_timeout_ms / 1000)
        return await EtcdClient.connect(
            address,
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=connection_timeout_ms,
            open_link=_links(grpc_links(security), machine),
        )
    except EtcdSettingsError as error:
        raise ProcessError(str(error)) from None
    except ZooKeeperError as error:
        raise ProcessError(f"cannot connect to etcd: {error}") from None


def _links(open_link: OpenLink, machine: "FaultyMachine | None") -> OpenLink:
    if machine is None:
        return open_link
    # Imported only when needed: few brokers have faults.
    from kalda.broker.process.faulty_etcd import cuttable_links

    return cuttable_links(open_link, machine.endpoint)


async def _require_closed(address: EtcdAddress, security: EtcdSecurity, timeout_seconds: float) -> None:
    """Require that etcd lets nobody without an identity read or write the cluster's keys.

    Raises:
        ProcessError: it does, or the brokers have no identity, or no server answers.
    """
    from dataclasses import replace

    from kalda.etcd import messages
    from kalda.etcd.connection import EtcdConnection
    from kalda.etcd.keys import Keys
    from kalda.etcd.link import LinkLostError, RefusedError

    if not security.user and security.certificate is None:
        raise ProcessError(
            "`zookeeper.set.acl`=true needs an identity at etcd: `etcd.user`, or `etcd.ssl.keystore.location`"
        )
    stranger = replace(security, user="", password="", certificate=None, private_key=None)
    keys, failure = Keys(address.prefix), "no answer"
    request = messages.txn((), (messages.range_op(keys.first, keys.end, count_only=True),))
    for endpoint in address.endpoints:
        connection = EtcdConnection(endpoint, stranger, timeout_seconds)
        try:
            async with asyncio.timeout(timeout_seconds):
                await connection.txn(request)
        except RefusedError:
            return
        except (LinkLostError, TimeoutError) as error:
            # Over TLS a server refuses a client without a certificate so; others are down.
            failure = f"{endpoint}: {error}"
        else:
            raise ProcessError(
                f"`zookeeper.set.acl`=true, but etcd at {endpoint} lets everybody read and write: enable its "
                "authentication (etcdctl auth enable) and give the brokers a user"
            )
        finally:
            await connection.close()
    if security.certificate is None:
        raise ProcessError(f"cannot connect to etcd: {failure}")
    logger.info("no server of etcd answers without a certificate: %s", failure)
