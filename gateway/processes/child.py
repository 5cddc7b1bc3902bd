"""One process of several: a configuration of its own, and the line to its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import PurePath
from typing import NamedTuple

import msgspec

from gateway.config import Config


class Place(NamedTuple):
    """Which of the processes this is, from 0, and the descriptor of the line to its parent."""

    number: int
    line: int

    @staticmethod
    def parse(text: str) -> Place:
        """`NUMBER:DESCRIPTOR`; ValueError for anything else."""
        number, _, line = text.partition(":")
        return Place(int(number), int(line))


def own_config(config: Config, place: Place) -> Config:
    """What the processes cannot share: an admin port that only the parent asks, and a file to record into."""
    listen = msgspec.structs.replace(config.listen, admin_host="127.0.0.1", admin_port=0)
    record = config.record
    if record is not None:
        record = msgspec.structs.replace(record, path=own_path(record.path, place.number))
    return msgspec.structs.replace(config, listen=listen, record=record)


def own_path(path: str, index: int) -> str:
    """The process's number before the endings: traffic.jsonl.gz becomes traffic.0.jsonl.gz."""
    whole = PurePath(path)
    stem, dot, endings = whole.name.partition(".") if not whole.name.startswith(".") else (whole.name, "", "")
    return str(whole.with_name(f"{stem}.{index}{dot}{endings}"))


async def tell_parent(place: Place, admin_port: int) -> asyncio.Task[None]:
    """Say where the admin port is; from then on a parent that dies takes this process along, drained."""
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=place.line))
    writer.write(msgspec.json.encode({"admin_port": admin_port}) + b"\n")
    return asyncio.create_task(_leave_with_parent(reader, writer), name="line to the parent")


async def _leave_with_parent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await reader.read()
    finally:
        writer.close()
    os.kill(os.getpid(), signal.SIGTERM)
