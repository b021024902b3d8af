"""Work for other processes: it begins to fit, and then something happens to it."""

import os
import time

SLEEPY = "ring"


def stub(pipe, job):
    """Sleep on one task; on another send a record, and end all at once."""
    pipe.send("fitting")
    if job.task == SLEEPY:
        time.sleep(60.0)
    pipe.send([{"row": job.rows[0]}])
    pipe.send("fitting")
    os._exit(7)
