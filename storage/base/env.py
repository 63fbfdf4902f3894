"""The environment of the process: clocks, random numbers, ids, threads and how they wait for one another.

Like RocksDB's `Env` it is the one place where the product takes them from, so that a simulation can run a whole lake
from one seed (docs/simulation.md). It costs nothing: the names are the system's own functions and classes. Of asyncio
nothing is here, as the event loop itself is replaced.

Write `env.monotonic_s()`, never `from … import monotonic_s`, and no default argument `= env.monotonic_s`: both would
keep the system's clock when the environment is replaced.
"""

from __future__ import annotations

import os
import queue
import random
import socket
import threading
import time
import uuid
from concurrent import futures
from datetime import datetime

# ---------------------------------------------------------------- clocks

wall_s = time.time  # since 1970
wall_ns = time.time_ns
monotonic_s = time.monotonic
monotonic_ns = time.monotonic_ns
thread_cpu_s = time.thread_time
process_cpu_s = time.process_time
local_now = datetime.now  # of the wall clock, in the time zone of the process


def sleep(wait_s: float) -> None:
    """Block this thread. In the event loop use `asyncio.sleep`: the loop's clock is its own."""
    time.sleep(wait_s)


# ---------------------------------------------------------------- randomness, ids

random_fraction = random.random  # from 0 up to, not including, 1
random_below = random.randrange
random_sample = random.sample
random_bytes = os.urandom
new_uuid = uuid.uuid4
process_id = os.getpid
host_name = socket.gethostname

# ---------------------------------------------------------------- threads

Thread = threading.Thread
Lock = threading.Lock
Condition = threading.Condition
Event = threading.Event
Queue = queue.Queue
ThreadPoolExecutor = futures.ThreadPoolExecutor
Future = futures.Future
wait = futures.wait
