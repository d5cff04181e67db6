"""The errors of `laploop.models`: one tree, each class named for what went wrong.

Knows nothing of how a model computes (see `laploop.engine.errors`) or of the agent's loop. A message is one
line: what was wrong, what was expected, the valid choices, and the way out.
"""

from __future__ import annotations


class ModelError(Exception):
    """A model could not be found, fetched or spoken to."""


class ModelNotFoundError(ModelError):
    """No such model: the spec names nothing that is known or that exists on disk."""


class ModelUnavailableError(ModelError):
    """The model is known, but none of its sources could be reached."""


class ChecksumError(ModelError):
    """The bytes that arrived are not the bytes that the catalogue or the hub promised."""


class QuantNotFoundError(ModelError):
    """The repository does not hold the wanted quantisation, or holds several files that match it."""


class DiskSpaceError(ModelError):
    """Not enough free disk space for the model."""


class TemplateError(ModelError):
    """The chat template is missing, cannot be parsed, or refuses the messages."""


class RequestError(ModelError):
    """A field of the request is missing, has the wrong type, or contradicts another."""
