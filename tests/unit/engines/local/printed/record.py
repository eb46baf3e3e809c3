"""Makes the texts beside it: what real libraries print of their training, standard output and standard error together.

Run as `python record.py [NAME...]` where tqdm, keras, lightning, transformers and accelerate are installed beside PyTorch; the
library itself does not need them. Each program is run on a pipe, as where output is a file, and on a terminal of 100 columns.
"""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent

TQDM = """
import time
from tqdm import tqdm
with tqdm(range(60), mininterval=0) as bar:
    for step in bar:
        time.sleep(0.002)
        bar.set_postfix(loss=1.5 * 0.97 ** step)
"""
TQDM_EPOCHS = """
import time
from tqdm import tqdm
for epoch in range(3):
    with tqdm(range(25), desc=f"Epoch {epoch}", mininterval=0) as bar:
        for batch in bar:
            time.sleep(0.002)
            if batch % 5 == 4:
                bar.set_postfix_str(f"loss={0.9 ** epoch * 0.99 ** batch:.4f}")
"""
TQDM_BARE = """
import time
from tqdm import trange
for step in trange(40, mininterval=0):
    time.sleep(0.002)
"""
KERAS = """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse", metrics=["mae"])
x = numpy.random.default_rng(1).normal(size=(80, 4)).astype("float32")
model.fit(x, x.sum(axis=1), epochs=3, batch_size=8, validation_split=0.2, verbose=VERBOSE)
"""
LIGHTNING = """
import logging, warnings
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import torch, lightning
from lightning.pytorch.callbacks import RichProgressBar, TQDMProgressBar
class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        x, = batch
        loss = ((self.layer(x) - x.sum(1, keepdim=True)) ** 2).mean()
        self.log("train_loss", loss, prog_bar=True)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05)
torch.manual_seed(1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(96, 4)), batch_size=8)
lightning.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_model_summary=False,
    callbacks=[TQDMProgressBar(refresh_rate=1)]).fit(Line(), data)
"""
HF = """
import os, warnings
warnings.simplefilter("ignore")
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import torch, transformers
torch.manual_seed(1)
class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels):
        return {"loss": ((self.layer(x).squeeze(-1) - labels) ** 2).mean()}
data = [{"x": row, "labels": row.sum()} for row in torch.randn(64, 4)]
arguments = transformers.TrainingArguments("out", num_train_epochs=3, per_device_train_batch_size=4, logging_steps=6,
    report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=DISABLED, learning_rate=0.05)
transformers.Trainer(Line(), arguments, train_dataset=data).train()
"""
PROGRAMS = {
    "tqdm": TQDM,
    "tqdm-epochs": TQDM_EPOCHS,
    "tqdm-bare": TQDM_BARE,
    "keras": KERAS.replace("VERBOSE", "1"),
    "keras-lines": KERAS.replace("VERBOSE", "2"),
    "lightning": LIGHTNING,
    "hf": HF.replace("DISABLED", "False"),
    "hf-lines": HF.replace("DISABLED", "True"),
}


def on_pipe(program: str) -> bytes:
    """Return what a program prints to a pipe."""
    return subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True).stdout


def on_terminal(program: str) -> bytes:
    """Return what a program prints to a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    with subprocess.Popen([sys.executable, "-c", program], stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        read = b""
        with suppress(OSError):  # The terminal has been closed.
            while more := os.read(ours, 65536):
                read += more
        if process.wait():
            raise SystemExit(read.decode())
    return read


if __name__ == "__main__":
    for name in sys.argv[1:] or PROGRAMS:
        for kind, record in (("pipe", on_pipe), ("terminal", on_terminal)):
            (HERE / f"{name}.{kind}.txt").write_bytes(record(PROGRAMS[name]))
    libraries = ("tqdm", "keras", "lightning", "transformers", "torch")
    (HERE / "versions.txt").write_text("".join(f"{one} {version(one)}\n" for one in libraries))
