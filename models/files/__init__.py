"""Which file and where from: catalogue, specs, caches, hub, packages, synthetic models. See `resolve`."""
