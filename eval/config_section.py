"""What every part of an experiment's config has in common."""

from pydantic import BaseModel, ConfigDict

from beamer.validation import numbers_alone


class ConfigSection(BaseModel):
    """A part of a config; keys that it does not know are errors.

    Infinity is kept where a section is written as JSON, as with figures, or what is read back would be another config.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")
    _numbers = numbers_alone
