"""Other routers' policies as choosers of a replay: written from how each is described, with its own defaults."""
