"""A measurement to be killed: python resumable.py MODEL TEXT CHECKPOINT. Says each prompt, waits after six."""

import sys
import time

from posbias.measurement import measure


def tell(event):
    print(event.done, flush=True)
    time.sleep(0.05 if event.done < 6 else 600)


if __name__ == "__main__":
    model, text, checkpoint = sys.argv[1:]
    measure(model, text=text, tokens=10, prompts=12, checkpoint=checkpoint, on_event=tell)
