"""Opening an input: the transport of each type of settings, imported when the first input of its type is opened."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from vedette.inputs.base import Running, Surroundings
from vedette.inputs.settings import (
    AuditInput,
    FileInput,
    HttpInput,
    InputSettings,
    JournalInput,
    KafkaInput,
    MqttInput,
    RelpInput,
    SyslogInput,
)

if TYPE_CHECKING:
    from vedette.inputs.connections import Listener


async def opened(settings: InputSettings, agent: Surroundings, descriptors: int) -> Running:
    """Open an input that may hold so many files or connections.

    Raises OSError that names the input and what to do; nothing stays open then.
    """
    match settings:
        case SyslogInput():
            from vedette.inputs.listen import SyslogListener

            return await _listening(SyslogListener(settings, agent), descriptors)
        case RelpInput():
            from vedette.inputs.relp_listen import RelpListener

            recent = await _recent(settings, agent)
            return await _listening(RelpListener(settings, agent, recent=recent), descriptors)
        case HttpInput():
            from vedette.inputs.http_listen import HttpListener

            return await _listening(HttpListener(settings, agent), descriptors)
        case JournalInput():
            from vedette.inputs.follow import JournalFollower

            return JournalFollower(settings, agent)
        case AuditInput():
            from vedette.inputs.multicast import AuditListener

            return AuditListener(settings, agent)
        case FileInput():
            from vedette.inputs.tail import FileTail

            return FileTail(settings, agent, open_files=descriptors)
        case MqttInput():
            from vedette.inputs.subscribe import MqttSubscription

            return MqttSubscription(settings, agent, recent=await _recent(settings, agent))
        case KafkaInput():
            from vedette.inputs.consume import KafkaConsumer

            return KafkaConsumer(settings, agent)
    from vedette.inputs.plugin import PluginInput, PluginRun

    if isinstance(settings, PluginInput):
        return PluginRun(settings, settings.entry, agent)
    raise TypeError(f"{type(settings).__name__} has no transport")


async def _listening(listener: Listener[Any], descriptors: int) -> Running:
    listener.bound(descriptors)
    await listener.start()
    return listener


async def _recent(settings: InputSettings, agent: Surroundings) -> list[tuple[int, str, bytes]]:
    return await asyncio.to_thread(lambda: list(agent.recent(settings.name)))
