"""One thread that runs what it is given, one thing at a time, and waiting for it that Ctrl-C may interrupt anywhere.

`concurrent.futures` will not do: an interrupt that arrives inside the Python code of its conditions and semaphores
leaves a lock held for ever. Here the waiting thread touches nothing but a queue and locks that are written in C.
Knows nothing of what it runs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread, current_thread


class ClosedError(Exception):
    """The thread has ended, or ends before it comes to this."""


class _Job:
    """Something to run, and what came of it; `lock` is held until it has run."""

    def __init__(self, function: Callable[[], int]) -> None:
        self.function = function
        self.result = 0
        self.error: BaseException | None = None
        self.finished = False
        self.lock = Lock()
        self.lock.acquire()

    def run(self) -> None:
        """Run it, and let those go on who wait for it."""
        try:
            self.result = self.function()
        except BaseException as error:  # noqa: BLE001  # raised where it is waited for
            self.error = error
        self.finished = True
        self.lock.release()


class _Jobs:
    """What is to be done; a None behind it all ends the thread."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[_Job | None] = SimpleQueue()
        self.lock = Lock()
        self.closed = False

    def put(self, job: _Job) -> None:
        """Raises ClosedError if nobody will run it."""
        with self.lock:
            if self.closed:
                raise ClosedError
            self.queue.put(job)

    def close(self) -> None:
        """Nothing comes behind what is there."""
        with self.lock:
            self.closed = True
            self.queue.put(None)


class Stepper:
    """The thread.

    Args:
        hurry: makes a running job end soon; called from other threads.
    """

    def __init__(self, hurry: Callable[[], None]) -> None:
        self._hurry = hurry
        self._jobs = _Jobs()
        # A daemon, since an engine that nobody closed must not keep the process alive. The finalizer ends it before
        # what its jobs use is freed: at exit, finalizers run in the reverse order of their making.
        thread = Thread(target=_work, args=(self._jobs.queue,), name="laploop-step", daemon=True)
        thread.start()
        self._end = weakref.finalize(self, _end, self._jobs, thread, hurry)

    def start(self, function: Callable[[], int]) -> None:
        """Let the thread run `function` behind what it has to do already. Raises ClosedError."""
        self._jobs.put(_Job(function))

    def run(self, function: Callable[[], int]) -> int:
        """Run `function` in the thread and return its result, or raise its exception, or ClosedError.

        Ctrl-C while waiting hurries it, waits for its end, and is then raised; a second one does not wait.
        """
        job = _Job(function)
        self._jobs.put(job)
        try:
            job.lock.acquire()
        except BaseException:
            self._hurry()
            if not job.finished:  # the interrupt may have come when the lock was had already
                job.lock.acquire()
            raise
        if job.error:
            raise job.error
        return job.result

    def close(self) -> None:
        """End the thread, once it has run what it was given; safe to call twice."""
        self._end()


def _work(queue: SimpleQueue[_Job | None]) -> None:
    while job := queue.get():
        job.run()
        del job  # it holds on to an engine that may be forgotten while this thread waits


def _end(jobs: _Jobs, thread: Thread, hurry: Callable[[], None]) -> None:
    hurry()
    jobs.close()
    if thread is not current_thread():  # the garbage collector may run in any thread
        thread.join()
