"""Key files, folders and the list of revoked keys are watched like the configuration itself."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest

from gateway.cli import main
from gateway.reload import APPLIED, REFUSED
from gateway.secrets import fingerprint, key_digest
from tests.gateway.builders import SALT_SECRET, key_line
from tests.gateway.reloading import (
    TWO_TENANTS,
    admin_page,
    build_data,
    gateway_from,
    replace_data,
    replace_file,
    status_with,
)
from tests.gateway.scripted_worker import scripted_worker, until
from tests.gateway.test_probes import free_port


async def test_a_folder_is_swapped_as_kubernetes_does_it(tmp_path):
    """H1: `..data` points elsewhere from one moment to the next; configuration and keys change together."""
    mount = tmp_path / "mount"
    async with scripted_worker() as worker:

        def write(generation: str, keys: dict[str, str]) -> None:
            """A generation of the volume, and the link to it renamed into place."""
            folder = mount / f"..{generation}"
            folder.mkdir(parents=True)
            data = build_data(worker.port, tenants={name: {"keys": [f"file:{mount}/{name}"]} for name in keys})
            (folder / "homing.yaml").write_text(json.dumps(data))
            for name, key in keys.items():
                (folder / name).write_text(key_line(key))
            (mount / "..new").symlink_to(folder.name)
            os.replace(mount / "..new", mount / "..data")
            for name in ("homing.yaml", *keys):
                if not (mount / name).is_symlink():
                    (mount / name).symlink_to(f"..data/{name}")

        write("first", {"acme": "one"})
        async with gateway_from(mount / "homing.yaml") as running:
            assert await status_with(running, "one") == 200
            write("second", {"acme": "two", "globex": "three"})
            await until(lambda: running.gateway.reloader.counts[APPLIED] == 1)
            codes = [await status_with(running, key) for key in ("one", "two", "three")]
            assert codes == [401, 200, 200]


async def test_a_folder_of_keys_is_watched(path, tmp_path):
    """A second key is put beside the first, clients change over, the first is taken away."""
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "old").write_text(key_line("old-key"))
    async with scripted_worker() as worker:
        replace_data(path, build_data(worker.port, tenants={"acme": {"keys": [f"file:{keys}"]}}))
        async with gateway_from(path) as running:
            (keys / "new").write_text(key_line("new-key"))
            await until(lambda: running.gateway.reloader.counts[APPLIED] == 1)
            assert [await status_with(running, key) for key in ("old-key", "new-key")] == [200, 200]
            (keys / "old").unlink()
            await until(lambda: running.gateway.reloader.counts[APPLIED] == 2)
            assert [await status_with(running, key) for key in ("old-key", "new-key")] == [401, 200]


async def test_a_key_is_revoked_even_while_the_file_has_a_mistake(path, tmp_path):
    """G4: the list is heeded on its own; a list that vanishes lets nobody in again."""
    revoked = tmp_path / "revoked"
    revoked.touch()
    async with scripted_worker() as worker:
        data = build_data(worker.port, tenants=TWO_TENANTS, revoked_keys=f"file:{revoked}")
        replace_data(path, data)
        async with gateway_from(path) as running:
            assert await status_with(running, "acme-key") == 200
            replace_file(path, "tenants: [")
            await until(lambda: running.gateway.reloader.refusal is not None)
            with revoked.open("a") as file:
                file.write(f"{key_line('acme-key')} 2026-11-30 lost\n")
            await until(lambda: running.gateway.reloader.secrets.revoked)
            assert [await status_with(running, key) for key in ("acme-key", "globex-key")] == [401, 200]
            revoked.write_text("nonsense\n")
            await running.gateway.reloader.look()
            await running.gateway.reloader.look()
            revoked.unlink()
            await running.gateway.reloader.look()
            await running.gateway.reloader.look()
            assert await status_with(running, "acme-key") == 401
            replace_data(path, data)
            assert await running.gateway.reloader.reload() == REFUSED
            assert "$.revoked_keys" in running.gateway.reloader.refusal.reasons[0]


async def test_a_list_that_a_new_configuration_names_is_heeded_at_once(path, tmp_path):
    """The keys in it are refused from the first request on that the configuration is in force for."""
    revoked = tmp_path / "revoked"
    revoked.write_text(f"{key_line('acme-key')}\n")
    async with scripted_worker() as worker:
        data = build_data(worker.port, tenants=TWO_TENANTS)
        replace_data(path, data)
        async with gateway_from(path) as running:
            assert await status_with(running, "acme-key") == 200
            replace_data(path, {**data, "revoked_keys": f"file:{revoked}"})
            await running.gateway.reloader.reload()
            assert [await status_with(running, key) for key in ("acme-key", "globex-key")] == [401, 200]


async def test_a_mistake_in_the_list_keeps_no_key_alive(path, tmp_path, caplog):
    """What can be read of the list is heeded, what was revoked stays so, and the log names the line."""
    revoked = tmp_path / "revoked"
    revoked.write_text(key_line("acme-key"))
    async with scripted_worker() as worker:
        replace_data(path, build_data(worker.port, tenants=TWO_TENANTS, revoked_keys=f"file:{revoked}"))
        async with gateway_from(path) as running:
            assert [await status_with(running, key) for key in ("acme-key", "globex-key")] == [401, 200]
            replace_file(revoked, f"sha256:half-a-line\n{key_line('globex-key')}\n")
            await until(lambda: len(running.gateway.reloader.secrets.revoked) == 2)
            assert [await status_with(running, key) for key in ("acme-key", "globex-key")] == [401, 401]
            assert f"{revoked}:1" in str([vars(record) for record in caplog.records])


async def test_the_page_shows_no_secret(path, tmp_path):
    """/config: digests as fingerprints, references as they are, and when keys end."""
    (tmp_path / "key").write_text(f"{key_line('other')} expires=2199-12-31\n")
    data = build_data(8001)
    data["tenants"]["acme"]["keys"].append(f"file:{tmp_path}/key")
    replace_data(path, data)
    async with gateway_from(path) as running:
        page = (await admin_page(running, "/config"))[1]
        told = json.dumps(page)
        assert SALT_SECRET not in told
        assert key_line("acme-key") not in told
        assert page["settings"]["salt_secrets"] == {"k1": "env:SALT"}
        assert page["settings"]["tenants"]["acme"]["keys"][0] == f"sha256:{fingerprint(key_digest('acme-key'))}…"
        assert page["keys"]["acme"] == [
            {"fingerprint": fingerprint(key_digest("acme-key")), "expires": None, "revoked": False},
            {"fingerprint": fingerprint(key_digest("other")), "expires": "2200-01-01T00:00:00+00:00", "revoked": False},
        ]
        assert page["file"] == str(path)


async def test_a_key_that_ends_soon_is_told_of(path, caplog):
    """At start and with each configuration: by tenant, fingerprint and time, and not when it was revoked anyway."""
    day = 86_400
    soon, ended, later = (
        (datetime.now(UTC) + timedelta(seconds=after)).isoformat() for after in (3 * day, -day, 100 * day)
    )
    keys = [f"{key_line(name)} expires={end}" for name, end in (("soon", soon), ("ended", ended), ("later", later))]
    replace_data(path, build_data(8001, tenants={"acme": {"keys": keys}}))
    caplog.set_level(logging.WARNING, "homing.reload")
    async with gateway_from(path):
        told = [(each.getMessage(), each.fields["tenant"], each.fields["key_fp"]) for each in caplog.records
                if each.name == "homing.reload"]  # fmt: skip
        assert told == [
            ("key expires soon", "acme", fingerprint(key_digest("soon"))),
            ("key has expired", "acme", fingerprint(key_digest("ended"))),
        ]


@pytest.mark.row("G4", smoke=True)
async def test_a_revoked_key_is_refused_by_every_gateway_while_redis_is_away(path, tmp_path):
    """G4: within 5 s of `homing keys revoke`, whatever else is wrong."""
    revoked = tmp_path / "revoked"
    revoked.touch()
    redis = {"url": f"redis://127.0.0.1:{free_port()}", "start_seconds": 0.1}
    async with scripted_worker() as worker, AsyncExitStack() as stack:
        data = build_data(worker.port, tenants=TWO_TENANTS, revoked_keys=f"file:{revoked}", redis=redis)
        replace_data(path, data)
        gateways = [await stack.enter_async_context(gateway_from(path)) for _ in range(3)]
        assert [await status_with(each, "acme-key") for each in gateways] == [200] * 3
        command = ["keys", "revoke", fingerprint(key_digest("acme-key")), "--config", str(path)]
        assert await asyncio.to_thread(main, command) == 0
        await until(lambda: all(each.gateway.reloader.secrets.revoked for each in gateways), seconds=5)
        assert [await status_with(each, "acme-key") for each in gateways] == [401] * 3
        assert [await status_with(each, "globex-key") for each in gateways] == [200] * 3


async def test_a_key_is_revoked_while_a_configuration_is_tried(path, tmp_path):
    """Reading tokenisers of new models takes seconds; a stolen key does not wait for them, nor does it come back."""
    revoked, tried, go_on = tmp_path / "revoked", asyncio.Event(), asyncio.Event()
    revoked.write_text("")

    async def slow(config, secrets) -> None:
        tried.set()
        await go_on.wait()

    async with scripted_worker() as worker:
        data = build_data(worker.port, tenants=TWO_TENANTS, revoked_keys=f"file:{revoked}")
        replace_data(path, data)
        async with gateway_from(path) as running:
            reloader = running.gateway.reloader
            reloader.on_reload(lambda *_: None, slow)
            replace_data(path, {**data, "limits": {"body_bytes": 100_000}})
            await asyncio.wait_for(tried.wait(), 5)
            replace_file(revoked, key_line("acme-key"))
            await until(lambda: key_digest("acme-key") in reloader.secrets.revoked)
            assert [await status_with(running, key) for key in ("acme-key", "globex-key")] == [401, 200]
            go_on.set()
            await until(lambda: reloader.counts[APPLIED] == 1)
            assert await status_with(running, "acme-key") == 401
            replace_file(revoked, "")
            await until(lambda: not reloader.secrets.revoked)
            assert await status_with(running, "acme-key") == 200
