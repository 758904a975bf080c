"""Serves the pages of the cluster: overview, brokers, log directories, and a broker's settings."""

import asyncio
from typing import TYPE_CHECKING

from starlette.responses import Response

from kalda.clients.admin.configs import ConfigResource
from kalda.http.console import command_lines
from kalda.http.console.changes import Change, ChangeForm, Fields, Form
from kalda.http.console.config_views import setting_rows
from kalda.http.console.reading import Reading, allowed
from kalda.http.console.topic_changes import setting_change, setting_fields
from kalda.http.console.visits import Visit
from kalda.http.errors import HttpError

if TYPE_CHECKING:
    from kalda.clients.admin.groups import GroupListing


async def overview(visit: Visit, reading: Reading) -> Response:
    """Show the cluster at a glance."""
    nothing: list[GroupListing] = []
    view, groups = await asyncio.gather(
        reading.cluster(visit.caller), allowed(reading.groups(visit.caller), nothing)
    )
    return visit.page(
        "overview.html",
        title="Overview",
        section="Overview",
        command=command_lines.line("cluster", "describe"),
        cluster=view,
        groups=len(groups),
    )


async def brokers(visit: Visit, reading: Reading) -> Response:
    """List the brokers with their log directories."""
    view, dirs = await asyncio.gather(reading.cluster(visit.caller), reading.log_dirs(visit.caller))
    return visit.page(
        "brokers.html",
        title="Brokers",
        section="Brokers",
        command=command_lines.line("log-dirs", "describe", options={"summary": True}),
        cluster=view,
        dirs=[
            (broker_id, path, each, sum(replica.size for replica in each.replica_infos.values()))
            for broker_id, of_broker in sorted(dirs.items())
            for path, each in sorted(of_broker.items())
        ],
    )


async def broker(visit: Visit, reading: Reading) -> Response:
    """Show the settings of a broker, with where each comes from."""
    broker_id = int(visit.request.path_params["broker_id"])
    view = await reading.cluster(visit.caller)
    row = next((each for each in view.brokers if each.id == broker_id), None)
    if row is None:
        raise HttpError(404, f"there is no broker {broker_id}")
    admin = await visit.admin()
    resource = ConfigResource.broker(broker_id)
    described = await admin.describe_configs([resource], include_synonyms=True, include_documentation=True)
    is_all = visit.parameter("all") == "1"
    rows = setting_rows(described[resource].values())
    return visit.page(
        "broker.html",
        title=f"Broker {broker_id}",
        section="Brokers",
        trail=(("Brokers", "/brokers"),),
        command=command_lines.line("configs", "describe", options={"broker": broker_id, "all": is_all}),
        broker=row,
        is_all=is_all,
        count=len(rows),
        rows=rows if is_all else [each for each in rows if each.is_own],
        edit_link=visit.url(f"/brokers/{broker_id}/settings") if visit.may_change else None,
    )


def broker_forms() -> dict[str, ChangeForm]:
    """Return the forms by their paths."""
    return {"/brokers/{broker_id:int}/settings": ChangeForm(_show_setting, _plan_setting)}


async def _show_setting(visit: Visit, values: Fields) -> Form:
    broker_id = int(visit.request.path_params["broker_id"])
    resource = ConfigResource.broker(broker_id)
    entries = (await (await visit.admin()).describe_configs([resource]))[resource]
    return Form(
        title=f"Change a setting of broker {broker_id}",
        path=f"/brokers/{broker_id}/settings",
        back=f"/brokers/{broker_id}",
        section="Brokers",
        trail=(("Brokers", "/brokers"), (f"Broker {broker_id}", f"/brokers/{broker_id}")),
        fields=setting_fields(values, entries),
    )


async def _plan_setting(visit: Visit, values: Fields) -> Change:
    broker_id = int(visit.request.path_params["broker_id"])
    return await setting_change(
        visit,
        values,
        ConfigResource.broker(broker_id),
        what=f"broker {broker_id}",
        option=("broker", broker_id),
        done=f"/brokers/{broker_id}",
        audited=f"Broker:{broker_id}",
    )
