"""Mistakes about secrets are told without the secret."""

from __future__ import annotations

import pytest

from gateway.config import ConfigError, load_config, load_secrets
from tests.gateway.builders import ENVIRON

CANARY = "CANARY0123456789abcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize(
    "text",
    [
        f"salt_secret: {CANARY}",
        f"salt_secrets: *{CANARY}",
        f"salt_secrets: !{CANARY} a",
        *(f"models: {{m: {{backends: {{static: [{{url: '{url}'}}]}}}}}}"
          for url in (f"https://user:{CANARY}@h", f"http://user:{CANARY}@h:1", f"http://h:1/?key={CANARY}")),
    ],
)  # fmt: skip
def test_a_mistake_about_a_secret_does_not_repeat_it(tmp_path, text):
    """It goes into the log and onto the admin port's page."""
    path = tmp_path / "homing.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_secrets(load_config(path, ENVIRON), ENVIRON)
    assert CANARY not in " ".join(map(str, (caught.value, *caught.value.others)))
