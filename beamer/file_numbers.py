"""Numbers in files, within what arithmetic can hold: pydantic's types for their fields.

Times are floating-point numbers of seconds. Within a year they are exact to four nanoseconds. Of 10^18 s they are exact to two
minutes, so that whatever begins then and lasts for a second takes no time. The bounds are those of what may be registered
(`beamer.studies.model`), so that every file can also be run by a controller.
"""

from typing import Annotated

from pydantic import BeforeValidator, Field

from beamer.studies.model import MAX_RUNG_TRIALS, MAX_SECONDS, MAX_STEPS, MAX_SYNC_BYTES, MAX_WEIGHT, MIN_WEIGHT
from beamer.units import parse_size

MAX_AMOUNT = 1e15
"""The largest amount without a unit, such as a loss: three decimal places of it are exact to a tenth."""

MAX_NODE_GPUS = 1024
"""GPUs of a node: more than ten times what the largest machines have. Policies keep tables with a column for each number."""

MAX_EXIT_STATUS = 255
"""The largest exit status of a process."""

Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]
PositiveSeconds = Annotated[float, Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=MAX_AMOUNT, allow_inf_nan=False)]
PositiveAmount = Annotated[float, Field(gt=0, le=MAX_AMOUNT, allow_inf_nan=False)]
AnyAmount = Annotated[float, Field(ge=-MAX_AMOUNT, le=MAX_AMOUNT, allow_inf_nan=False)]
Weight = Annotated[float, Field(gt=0, ge=MIN_WEIGHT, le=MAX_WEIGHT, allow_inf_nan=False)]
Iterations = Annotated[int, Field(ge=1, le=MAX_STEPS)]
Trials = Annotated[int, Field(ge=1, le=MAX_RUNG_TRIALS)]
NodeGpus = Annotated[int, Field(ge=0, le=MAX_NODE_GPUS)]
SyncBytes = Annotated[int, BeforeValidator(lambda value: parse_size(value, "bytes")), Field(le=MAX_SYNC_BYTES)]
