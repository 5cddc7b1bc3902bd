"""What two replicas must agree on before the news of one means anything to the other, as digests."""

from __future__ import annotations

import hmac
import os

from xxhash import xxh3_64_digest

from gateway.shared.wire import MARK_BYTES
from router.blocks import HASH_VERSION
from router.ring import POINT_SEED, POINTS_PER_WORKER
from router.tokenise import LoadedModelText

KEY_LABEL = b"homing-news/v1"


def model_digest(model: str, text: LoadedModelText, block_tokens: int) -> bytes:
    """Equal only where the same prompt gives the same exact chain and the same ring the same homes."""
    facts = (str(HASH_VERSION), str(POINT_SEED), str(POINTS_PER_WORKER), str(block_tokens), text.digest, model)
    return xxh3_64_digest("\0".join(facts).encode(errors="surrogatepass"))


def worker_digest(name: str) -> bytes:
    """Stands for a worker's name."""
    return xxh3_64_digest(name.encode(errors="surrogatepass"))


def news_key(salt_key: bytes | None) -> bytes:
    """The key that seals news, derived from the salt secret; empty where there is none."""
    return hmac.digest(salt_key, KEY_LABEL, "sha256") if salt_key else b""


def new_replica() -> bytes:
    """The identity of a replica: random, anew at every start."""
    return os.urandom(MARK_BYTES)
