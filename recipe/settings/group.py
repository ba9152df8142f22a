"""The base of our configuration groups, and the error of a configuration that a user has to change."""

from pydantic import BaseModel, ConfigDict


class SettingsError(ValueError):
    """A user's configuration is invalid; the message names the key, the reason and the valid values."""


class Group(BaseModel):
    """A configuration group: frozen, refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)
