"""A program that trains nothing: it counts iterations, and keeps the last one in its checkpoint, as text."""

import json
import os
import signal
import sys
import time
from pathlib import Path

checkpoint, target, pause_s = Path(os.environ["BEAMER_CHECKPOINT"]), int(sys.argv[1]), float(sys.argv[2])
stopped: list[int] = []
signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
done = int(checkpoint.read_text()) if checkpoint.exists() else 0
print(json.dumps({"iteration": done, "loss": 1 / (1 + done)}), flush=True)
while done < target and not stopped:
    time.sleep(pause_s)
    done += 1
    print(json.dumps({"iteration": done, "loss": 1 / (1 + done)}), flush=True)
checkpoint.write_text(str(done))
