"""Numbers in files, within what arithmetic can hold: pydantic's types for their fields.

Times are floating-point numbers of seconds. Within a year they are exact to four nanoseconds. Of 10^18 s they are exact to two
minutes, so that whatever begins then and lasts for a second takes no time. The bounds are those of what may be registered
(`beamer.studies.model`), so that every file can also be run by a controller.
"""

from typing import Annotated

from pydantic import BeforeValidator, Field

from beamer.studies.model import LEAST_WEIGHT, MOST_RUNG_TRIALS, MOST_SECONDS, MOST_STEPS, MOST_SYNC_BYTES, MOST_WEIGHT
from beamer.units import parse_size

MOST_AMOUNT = 1e15
"""The largest amount without a unit, such as a loss: three decimal places of it are exact to a tenth."""

MOST_NODE_GPUS = 1024
"""GPUs of a node: more than ten times what the largest machines have. Policies keep tables with a column for each number."""

MOST_CODE = 255
"""The largest exit status of a process."""

Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS, allow_inf_nan=False)]
PositiveSeconds = Annotated[float, Field(gt=0, le=MOST_SECONDS, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=MOST_AMOUNT, allow_inf_nan=False)]
PositiveAmount = Annotated[float, Field(gt=0, le=MOST_AMOUNT, allow_inf_nan=False)]
AnyAmount = Annotated[float, Field(ge=-MOST_AMOUNT, le=MOST_AMOUNT, allow_inf_nan=False)]
Weight = Annotated[float, Field(gt=0, ge=LEAST_WEIGHT, le=MOST_WEIGHT, allow_inf_nan=False)]
Iterations = Annotated[int, Field(ge=1, le=MOST_STEPS)]
Trials = Annotated[int, Field(ge=1, le=MOST_RUNG_TRIALS)]
NodeGpus = Annotated[int, Field(ge=0, le=MOST_NODE_GPUS)]
SyncBytes = Annotated[int, BeforeValidator(lambda value: parse_size(value, "bytes")), Field(le=MOST_SYNC_BYTES)]
