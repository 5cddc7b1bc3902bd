"""A small TCP balancer in front of gateways: it asks /readyz, and gives new connections to those that say yes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from tests.faults.stage import GatewayProcess

LOOK_SECONDS = 0.05
PIECE_BYTES = 65536


class Balancer:
    """`gateways` may be changed at any time."""

    def __init__(self, gateways: Sequence[GatewayProcess]) -> None:
        self.gateways = list(gateways)
        self.port = 0
        self._ready: list[GatewayProcess] = list(gateways)
        self._turn = 0

    async def look(self) -> None:
        """Ask all of them, again and again."""
        while True:
            gateways = tuple(self.gateways)
            answers = await asyncio.gather(*(gateway.ready() for gateway in gateways))
            self._ready = [gateway for gateway, ready in zip(gateways, answers, strict=True) if ready]
            await asyncio.sleep(LOOK_SECONDS)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection; the next gateway where one refuses it."""
        for _ in range(len(self._ready)):
            self._turn += 1
            gateway = self._ready[self._turn % len(self._ready)]
            with suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", gateway.port)
                await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))
                return
        writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(PIECE_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def balancer(gateways: Sequence[GatewayProcess]) -> AsyncIterator[Balancer]:
    """A balancer on a free port of this machine."""
    it = Balancer(gateways)
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0, backlog=4096)
    it.port = server.sockets[0].getsockname()[1]
    looking = asyncio.create_task(it.look())
    try:
        yield it
    finally:
        looking.cancel()
        server.close()
