"""The fleet as placement sees it, model by model; drawn once, and again when more than counts has changed."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.recovery import Recovery
from gateway.worker_state import ServingFacts, Worker
from router.core import FleetView


class Pictures:
    """Pictures by model. Their workers' counts are live, so that a request costs no drawing.

    While some worker is ejected, on its way back or given a rest, time alone may change what it takes: then each
    picture is drawn anew.
    """

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery
        self._kept: dict[str, FleetView] = {}

    def kept(self, model: str) -> FleetView | None:
        """The picture, if it was drawn and still holds."""
        return None if self._recovery.limited else self._kept.get(model)

    def drawn(self, model: str, serving: Sequence[Worker], facts: ServingFacts) -> FleetView:
        """A new picture of the workers that this model is sent to. One without workers is not kept: anybody can name
        a model."""
        recovery = self._recovery
        if recovery.limited:
            recovery.refresh()
        views = [worker.view(model, facts) for worker in serving]
        if recovery.limited:
            views = recovery.reconsider(model, serving, views)
        picture = FleetView(tuple(views))
        if views and not recovery.limited:
            self._kept[model] = picture
        return picture

    def forget(self) -> None:
        """Something about a worker has changed."""
        self._kept.clear()
