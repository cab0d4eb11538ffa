# SPDX-License-Identifier: Apache-2.0
"""A scheduler small enough to be read in a minute: jobs that write a log and end as they are told, a queue, a hold.

It lives in the test's process and outlives any agent; agents talk to it over a unix socket, one JSON object a line. It
keeps a record of every write, which is what tests believe. Like the real ones it forgets nothing by itself, answers
reads at once, and a requeue raises the restart count."""
import json
import os
import socket
import subprocess
import threading
import time

FAULT = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
WEAK = "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx"
TERMINAL = ("COMPLETED", "FAILED", "CANCELLED")


class Refused(Exception):
    """The scheduler says no; the text says why."""


class Scheduler:
    def __init__(self, folder, nodes=4):
        self.dir = folder
        self.path = f"{folder}/scheduler.sock"
        self.nodes = [f"n{i + 1}" for i in range(nodes)]
        self.jobs = {}
        self.record = []      # every write: (time, verb, job id, restart count before, what)
        self.away = False     # answers nothing
        self.lock = threading.Condition()
        self.next_id = 100
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(8)
        threading.Thread(target=self._serve, daemon=True).start()
        threading.Thread(target=self._run, daemon=True).start()

    # what people do

    def submit(self, scene, comment='{"advisor":{"max_restarts":3}}', steps=5, step_s=0.05, **more):
        with self.lock:
            self.next_id += 1
            job = dict(id=str(self.next_id), scene=scene, comment=comment, steps=steps, step_s=step_s, user="labuser1", uid=2001,
                       submit=int(time.time()), state="PENDING", restarts=0, held=False, held_by_requeue=False, excluded=[],
                       nodes="", eligible=0, start=0, end=0, exit_code=0, stdout="", more=more)
            self.jobs[job["id"]] = job
            self.lock.notify_all()
            return job["id"]

    def cancel(self, job_id):
        with self.lock:
            job = self.jobs[job_id]
            if job["state"] not in TERMINAL:
                job.update(state="CANCELLED", end=int(time.time()), held=False)

    def view(self, job_id):
        with self.lock:
            return {k: v for k, v in self.jobs[job_id].items() if k != "more"}

    def forget(self, job_id):
        with self.lock:
            del self.jobs[job_id]

    # how jobs go

    def _run(self):
        """Starts what waits and may; each attempt is a thread that writes its log and ends."""
        while True:
            with self.lock:
                now = time.time()
                for job in self.jobs.values():
                    if job["state"] == "PENDING" and not job["held"] and job["eligible"] <= now:
                        free = [n for n in self.nodes if n not in job["excluded"]]
                        if free:
                            job.update(state="RUNNING", nodes=free[0], start=int(now), end=0,
                                       stdout=f"{self.dir}/out-{job['id']}-{job['restarts']}.log")
                            threading.Thread(target=self._attempt, args=(job, job["restarts"]), daemon=True).start()
                self.lock.wait(0.05)

    def _attempt(self, job, restarts):
        state, code = "COMPLETED", 0
        with open(job["stdout"], "wb", buffering=0) as out:
            def say(text):
                out.write(text.encode() + b"\n")
            if job["scene"] == "noisy":
                self._noise(job, out)
            for i in range(1, job["steps"] + 1):
                say(f" iteration {i}/{job['steps']} | consumed samples: {i * 8} | elapsed time per iteration (ms): 200.0 | lm loss: 2.5")
                time.sleep(job["step_s"])
                with self.lock:
                    if job["state"] != "RUNNING" or job["restarts"] != restarts:
                        return  # cancelled or requeued meanwhile
            if job["scene"] == "importerror":
                say('Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    import flash_attn\n'
                    "ModuleNotFoundError: No module named 'flash_attn'")
                state, code = "FAILED", 1
            elif job["scene"] in ("fault", "weak") and restarts == 0:
                say(f"{job['nodes']}: {FAULT if job['scene'] == 'fault' else WEAK}")
                state, code = "FAILED", 1
                time.sleep(0.2)
            else:
                say("[after training is done] datetime: now")
        with self.lock:
            if job["state"] == "RUNNING" and job["restarts"] == restarts:
                job.update(state=state, exit_code=code, end=int(time.time()))

    @staticmethod
    def _noise(job, out):
        """As many bytes as asked for, as fast as the disk takes them; then it stays until told."""
        subprocess.run(["sh", "-c", f"yes '{'noise ' * 16}' | head -c {job['more']['bytes']}"], stdout=out, check=True)
        while not os.path.exists(job["more"]["until"]):
            time.sleep(0.05)

    # what agents ask

    def _serve(self):
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._client, args=(conn,), daemon=True).start()

    def _client(self, conn):
        with conn, conn.makefile("rw") as f:
            for line in f:
                while self.away:
                    time.sleep(0.05)
                q = json.loads(line)
                try:
                    answer = {"ok": getattr(self, "do_" + q.pop("do"))(**q)}
                except Refused as e:
                    answer = {"refused": str(e)}
                try:
                    f.write(json.dumps(answer) + "\n")
                    f.flush()
                except OSError:
                    return  # the agent has died; what it asked for was done

    def do_list(self):
        with self.lock:
            return {"jobs": [{k: v for k, v in j.items() if k != "more"} for j in self.jobs.values()],
                    "nodes": [{"name": n, "state": "IDLE"} for n in self.nodes]}

    def do_job(self, id):
        with self.lock:
            return {k: v for k, v in self.jobs[id].items() if k != "more"} if id in self.jobs else None

    def _write(self, verb, id, submit, restarts, what=""):
        """The one door for writes: only to the very submission and attempt that the caller read."""
        job = self.jobs.get(id)
        if not job or job["submit"] != submit or job["restarts"] != restarts:
            raise Refused("it is another job or attempt by now")
        self.record.append((time.time(), verb, id, restarts, what))
        return job

    def do_preserve(self, id, submit, restarts):
        """Puts an ended job back into the queue, held."""
        with self.lock:
            job = self._write("preserve", id, submit, restarts)
            if job["state"] != "FAILED":
                raise Refused(f"not failed but {job['state']}")
            job.update(state="PENDING", restarts=restarts + 1, held=True, held_by_requeue=True, nodes="", start=0, end=0,
                       exit_code=0, eligible=time.time() + 120)

    def do_constrain(self, id, submit, restarts, exclude):
        with self.lock:
            job = self._write("constrain", id, submit, restarts, ",".join(exclude))
            if job["state"] != "PENDING":
                raise Refused(f"not waiting but {job['state']}")
            job.update(excluded=exclude, eligible=time.time() + 1)

    def do_release(self, id, submit, restarts):
        with self.lock:
            job = self._write("release", id, submit, restarts)
            if not job["held"]:
                raise Refused("not held")
            job.update(held=False, held_by_requeue=False)
            self.lock.notify_all()


class Client:
    """An agent's connection. Every call has an end: OSError when the scheduler does not answer in time."""

    def __init__(self, path, timeout):
        self.path = path
        self.timeout = timeout
        self.file = None

    def __call__(self, do, **kw):
        try:
            if not self.file:
                s = socket.socket(socket.AF_UNIX)
                s.settimeout(self.timeout)
                s.connect(self.path)
                self.file = s.makefile("rw")
                s.close()  # the file has it now
            self.file.write(json.dumps({"do": do, **kw}) + "\n")
            self.file.flush()
            line = self.file.readline()
        except OSError:
            self.file = None
            raise
        if not line:
            self.file = None
            raise OSError("the scheduler hung up")
        answer = json.loads(line)
        if "refused" in answer:
            raise Refused(answer["refused"])
        return answer["ok"]
