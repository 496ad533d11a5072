"""Failures of the dialect `jobs`: what its author tried by hand and by scripts, and what its lines promise, over HTTP alone.

    python3 jobs.py PROGRAM [FAILURE ...]
"""

import os
import random
import subprocess
import sys
import threading
import time
import uuid

from stage import ask, ask_until_answered, at_once, check, is_status, main, until

LEASE_SECONDS = 30
# A lease is looked after every second, and this machine may be busy.
EXPIRED_SECONDS = LEASE_SECONDS + 6
MAX_TRIES = 3


def enqueue(server, payload="work", key=None):
    headers = {"Idempotency-Key": key} if key else None
    return server.post("/enqueue", {"payload": payload}, headers)


def new_job(server, payload="work", key=None):
    return is_status(enqueue(server, payload, key), 200, "/enqueue").json()["job_id"]


def poll(server, worker):
    """The job, or nothing after 30 s."""
    answer = server.post("/poll", {"worker_id": worker})
    if answer.status == 204:
        return None
    return is_status(answer, 200, "/poll").json()


def told(worker, job):
    return {"worker_id": worker, "job_id": job["id"], "lease_id": job["lease_id"]}


def report(server, path, worker, job):
    return server.post(path, told(worker, job))


def job_of(server, job_id):
    return server.get("/jobs").json()[job_id]


def many_enqueue_while_others_look(stage):
    """Days 2 and 7: concurrent enqueues, and concurrent reads of `/jobs`."""
    server = stage.dev("jobs")

    def submit(number):
        return [new_job(server, f"{number}-{each}") for each in range(10)]

    def look():
        for _ in range(20):
            is_status(server.get("/jobs"), 200, "/jobs")
            is_status(server.get("/dead"), 200, "/dead")

    calls = [lambda number=number: submit(number) for number in range(20)] + [look] * 3
    ids = [job_id for some in at_once(*calls) if some for job_id in some]
    for job_id in ids:
        uuid.UUID(job_id)
    check(len(set(ids)) == 200, "there are", len(set(ids)), "ids")
    jobs = server.get("/jobs").json()
    check(set(jobs) == set(ids), "/jobs has", len(jobs))
    wrong = [it for it in jobs.values() if it["state"] != "QUEUED" or it["attempts"] or it["lease_id"]]
    check(not wrong, wrong[:1])
    payloads = {it["payload"] for it in jobs.values()}
    check(len(payloads) == 200, "payloads are mixed up")


def two_workers_poll_at_once(stage):
    """Day 3: no two workers have the same lease; and pollers that wait are woken at once."""
    server = stage.dev("jobs")
    found, waiting = [], []
    for number in range(8):
        name = f"w{number}"
        thread = threading.Thread(target=lambda name=name: found.append((name, poll(server, name))), daemon=True)
        thread.start()
        waiting.append(thread)
    ids = set()
    for count in range(1, 9):
        ids.add(new_job(server))
        _, seconds = until("a waiting poller", 5, lambda: len(found) >= count)
        check(seconds < 2 or count == 1, "a poller waits for", seconds, "s")
        check(len(found) == count, "one job has woken several pollers", found)
    for thread in waiting:
        thread.join(10)
    check({job["id"] for _, job in found} == ids, found)
    check(all(job["lease_id"] == 1 and job["lease_owner"] == name for name, job in found), found)
    # What is leased is not handed out again: a poll comes back empty after 30 s.
    began = time.monotonic()
    late = [found.pop() for _ in range(len(found))]
    for name, job in late:
        is_status(report(server, "/ack", name, job), 200, "/ack")
    check(poll(server, "late") is None, "a finished job is handed out")
    check(25 < time.monotonic() - began < 40, "an empty poll took", time.monotonic() - began)


def the_same_key_twice(stage):
    """Day 5: a key makes one job, whether it is told again, at once, behind its end, wrongly, or behind a crash."""
    server = stage.dev("jobs")
    first = new_job(server, "pay", "order-1")
    check(new_job(server, "pay", "order-1") == first, "a repetition makes another job")
    check(new_job(server, "something else", "order-1") == first, "another payload makes another job")
    answers = at_once(*[lambda: enqueue(server, "pay", "order-2")] * 20)
    ids = {it.json()["job_id"] for it in answers if it.status == 200}
    others = [it for it in answers if it.status not in (200, 409)]
    check(len(ids) == 1 and not others, ids, others)
    check(all(not it.body for it in answers if it.status == 409), "a 409 has a body")
    # A request that is malformed reserves nothing.
    for body in [b"{", b'{"payload":7}', b"[]", b""]:
        is_status(server.post("/enqueue", body, {"Idempotency-Key": "order-3"}), 400, body)
    third = new_job(server, "pay", "order-3")
    check(len(server.get("/jobs").json()) == 3, server.get("/jobs"))
    # After its end, and after a crash, the key still names its job.
    while (job := poll(server, "w"))["id"] != third:
        is_status(report(server, "/ack", "w", job), 200, "/ack")
    is_status(report(server, "/ack", "w", job), 200, "/ack")
    check(new_job(server, "pay", "order-3") == third, "a finished job is made again")
    server.kill_and_start()
    check(new_job(server, "pay", "order-1") == first, "a crash forgets the key")
    check(len(server.get("/jobs").json()) == 3, server.get("/jobs"))
    return f"{sum(it.status == 409 for it in answers)} of 20 were told 409"


def a_worker_is_killed_with_its_lease(stage):
    """Days 3 and 6: another worker gets the job when the lease has run out, and reports of the dead one's lease have no effect."""
    server = stage.dev("jobs")
    job_id = new_job(server)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")
    worker = subprocess.Popen([sys.executable, script, server.url(), "doomed"], stdout=subprocess.PIPE)
    try:
        worker.stdout.readline()
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()
    began = time.monotonic()
    dead = job_of(server, job_id)
    check((dead["state"], dead["lease_owner"], dead["lease_id"]) == ("LEASED", "doomed", 1), dead)
    check(0 < dead["lease_expires_at"] - time.time() <= LEASE_SECONDS + 1, dead)
    job = None
    while not job:
        job = poll(server, "heir")
    seconds = time.monotonic() - began
    check(job["id"] == job_id and job["lease_id"] == 2 and job["attempts"] == 1, job)
    check(LEASE_SECONDS - 3 < seconds < EXPIRED_SECONDS, "the job comes again after", seconds)
    zombie = {**told("doomed", job), "lease_id": 1}
    for path in ("/ack", "/fail"):
        refused = is_status(server.post(path, zombie), 409, path)
        check(refused.code() in ("stale_lease_id", "not_current_lease_owner"), refused)
        # Nor may it take the lease of the other one by guessing its number.
        refused = is_status(report(server, path, "doomed", job), 409, path)
        check(refused.code() == "not_current_lease_owner", refused)
    for _ in range(2):
        is_status(report(server, "/ack", "heir", job), 200, "an ack, twice")
    check(job_of(server, job_id)["state"] == "DONE", job_of(server, job_id))
    is_status(server.post("/ack", zombie), 200, "an ack of what is done")
    for event, fields in (
        ("job_enqueued", {"payload_len": 4}),
        ("job_leased", {"worker_id": '"heir"', "lease_id": 2}),
        ("lease_expired", {"worker_id": '"doomed"', "lease_id": 1}),
        ("ack_rejected", {"uuid": f'"{job_id}"', "reason": '"not_current_lease_owner"'}),
        ("job_acked", {"worker_id": '"heir"', "lease_id": 2}),
    ):
        check(server.has_logged(event, **fields), "it is not logged:", event, fields, server.log())
    return f"{seconds:.1f} s until the job came again"


def an_ack_comes_after_the_lease(stage):
    """Day 6: with nobody else asking, a report behind the end of the lease is refused as well, and changes nothing."""
    server = stage.dev("jobs")
    job_id = new_job(server)
    job = poll(server, "slow")
    until("the end of the lease", EXPIRED_SECONDS, lambda: job_of(server, job_id)["state"] == "QUEUED")
    for path in ("/ack", "/fail"):
        refused = is_status(report(server, path, "slow", job), 409, path)
        check(refused.code() == "lease_expired", refused)
    shown = job_of(server, job_id)
    # It is there at once.
    check(not shown.get("next_available_at") and shown["attempts"] == 1, shown)
    again, seconds = until("the job", 5, lambda: poll(server, "slow"))
    check(again["lease_id"] == 2 and seconds < 2, again, seconds)
    is_status(report(server, "/ack", "slow", job), 409, "the old lease")
    is_status(report(server, "/ack", "slow", again), 200, "the new lease")


def a_job_fails_every_time(stage):
    """Day 4: a pause between tries that is kept, and DEAD after the third one."""
    server = stage.dev("jobs")
    job_id = new_job(server, "poison")
    for attempt in range(1, MAX_TRIES + 1):
        job, _ = until("the job", 60, lambda: poll(server, "w"))
        check((job["id"], job["lease_id"], job["attempts"]) == (job_id, attempt, attempt - 1), job)
        check(job["max_tries"] == MAX_TRIES, job)
        is_status(report(server, "/fail", "w", job), 200, "/fail")
        shown = job_of(server, job_id)
        check(shown["attempts"] == attempt, shown)
        if attempt == MAX_TRIES:
            break
        check(shown["state"] == "QUEUED", shown)
        pause = shown.get("next_available_at", 0) - time.time()
        check(pause <= 5 * 2 ** (attempt - 1) + 1, "a pause of", pause)
        # While it waits, others are not held up.
        other = new_job(server, "other")
        ready = poll(server, "w")
        if ready["id"] == job_id:
            check(time.time() >= shown.get("next_available_at", 0) - 1, "the pause is not kept")
            job_was_early = ready
            is_status(report(server, "/fail", "w", job_was_early), 200, "/fail")
            return "the pause was shorter than a request: not looked at"
        check(ready["id"] == other, ready)
        is_status(report(server, "/ack", "w", ready), 200, "/ack")
    dead = server.get("/dead").json()
    check(list(dead) == [job_id] and dead[job_id]["state"] == "DEAD", dead)
    check(job_of(server, job_id)["state"] == "DEAD", "it is not DEAD in /jobs")
    for path in ("/ack", "/fail"):
        is_status(report(server, path, "w", job), 409, path)
    server.kill_and_start()
    check(list(server.get("/dead").json()) == [job_id], "a crash forgets the dead letter")
    return None


def a_job_kills_its_workers(stage):
    """Beyond the document (1.21 lets it live for ever): a job that only ever loses its workers is DEAD after the third one."""
    server = stage.dev("jobs")
    job_id = new_job(server, "poison")
    for attempt in range(1, MAX_TRIES + 1):
        job, _ = until("the job", 60, lambda: poll(server, f"w{attempt}"))
        check((job["id"], job["lease_id"], job["attempts"]) == (job_id, attempt, attempt - 1), job)
    until("the dead letter", EXPIRED_SECONDS, lambda: job_id in server.get("/dead").json())
    dead = server.get("/dead").json()[job_id]
    check((dead["state"], dead["attempts"]) == ("DEAD", MAX_TRIES), dead)


class Crowd:
    """The harness of day 7: workers of which 60 % ack, 20 % fail and 20 % hang past their lease. Notes who was told 200."""

    def __init__(self, server, hang_seconds):
        self.server, self.hang_seconds = server, hang_seconds
        self.lock, self.acked, self.stale, self.over = threading.Lock(), {}, 0, False

    def work(self, name):
        rng = random.Random(name)
        while not self.over:
            answer = ask_until_answered(self.server.url, "POST", "/poll", {"worker_id": name})
            if answer.status == 204:
                continue
            job = is_status(answer, 200, "/poll").json()
            plan = rng.choices(("/ack", "/fail", "hang"), (6, 2, 2))[0]
            if plan == "hang":
                time.sleep(self.hang_seconds)
                plan = "/ack"
            self.note(job, plan, ask_until_answered(self.server.url, "POST", plan, told(name, job)))

    def note(self, job, plan, answer):
        check(answer.status in (200, 409), plan, answer)
        with self.lock:
            self.stale += answer.status == 409
            if answer.status == 200 and plan == "/ack":
                self.acked.setdefault(job["id"], set()).add(job["lease_id"])


def the_server_is_killed_in_mid_work(stage):
    """Day 7: broker restart mid-flight. Here nothing is lost: leases, attempts and keys outlive `kill -9`."""
    server = stage.dev("jobs")
    held = new_job(server, "held")
    lease = poll(server, "steady")
    check(lease["id"] == held, lease)
    server.kill_and_start()
    shown = job_of(server, held)
    check((shown["state"], shown["lease_id"], shown["lease_owner"]) == ("LEASED", 1, "steady"), shown)
    is_status(report(server, "/ack", "steady", lease), 200, "the ack of a lease from before the crash")
    crowd = Crowd(server, LEASE_SECONDS + 3)
    workers = [threading.Thread(target=crowd.work, args=(f"w{number}",), daemon=True) for number in range(12)]
    for worker in workers:
        worker.start()
    keys = {}
    for number in range(30):
        body, key = {"payload": f"job {number}"}, f"key-{number}"
        if number in (10, 20):
            server.kill()
            threading.Timer(0.3, server.start).start()
        answer = ask_until_answered(server.url, "POST", "/enqueue", body, {"Idempotency-Key": key})
        while answer.status == 409:
            answer = ask_until_answered(server.url, "POST", "/enqueue", body, {"Idempotency-Key": key})
        keys[key] = is_status(answer, 200, "/enqueue").json()["job_id"]
    check(len(set(keys.values())) == 30, "two keys have one job")

    def jobs():
        answer = ask_until_answered(server.url, "GET", "/jobs").json()
        return answer if all(it["state"] in ("DONE", "DEAD") for it in answer.values()) else None

    ended, _ = until("the end of all jobs", 240, jobs)
    crowd.over = True
    check(set(ended) == {held, *keys.values()}, "there are", len(ended), "jobs")
    for job_id, job in ended.items():
        check(job["attempts"] <= MAX_TRIES, job)
        acked = crowd.acked.get(job_id, set())
        # A report behind the end is 200 as well, so that several may have been told so.
        check(job["state"] != "DONE" or acked or job_id == held, "nobody was told of", job)
        check(job["state"] != "DEAD" or not acked, "accepted, and dead:", job)
    counts = {state: sum(it["state"] == state for it in ended.values()) for state in ("DONE", "DEAD")}
    return f"{counts}, {crowd.stale} stale reports"


def requests_are_wrong(stage):
    """Each is answered, with nothing done, and the server goes on."""
    server = stage.dev("jobs")
    good = {"worker_id": "w", "job_id": str(uuid.uuid4()), "lease_id": 1}
    for path in ("/enqueue", "/poll", "/ack", "/fail"):
        for method in ("GET", "PUT", "DELETE"):
            is_status(ask(server.url(), method, path), 405, f"{method} {path}")
        for body in (None, b"", b"{", b"[]", b'"x"', b"7", b"null", b"\x00", b"\xff\xfe", b"[" * 100_000, b"{}x"):
            is_status(server.post(path, body), 400, f"{path} {body!r:.40}")
    for path in ("/jobs", "/dead"):
        for method in ("POST", "PUT", "DELETE"):
            is_status(ask(server.url(), method, path), 405, f"{method} {path}")
    for wrong in ({}, {"worker_id": ""}, {"worker_id": 7}, {"worker_id": None}, {"worker_id": ["w"]}, {"worker_id": "w\n\x1b[31m"}):
        is_status(server.post("/poll", wrong), 400, f"/poll {wrong}")
    for path in ("/ack", "/fail"):
        for name in good:
            is_status(server.post(path, {**good, name: None}), 400, f"{path} without {name}")
            is_status(server.post(path, {**good, name: {}}), 400, f"{path} with another {name}")
        is_status(server.post(path, good), 404, f"{path} of an unknown job")
        is_status(server.post(path, {**good, "job_id": "../../etc/passwd"}), 404, path)
        is_status(server.post(path, {**good, "job_id": "\x00"}), 404, path)
        is_status(server.post(path, {**good, "lease_id": 10**30}), 400, path)
    is_status(server.post("/enqueue", {"payload": "x" * (6 << 20)}), 413, "6 MiB")
    check(server.get("/jobs").json() == {}, "something was done:", server.get("/jobs"))
    # What is unusual and allowed comes back as it went.
    for payload in ("", "\x00\x1f", "ä→🦀", "<img src=x onerror=alert(1)>", '{"a":[1,2]}', "x" * (1 << 20)):
        job_id = new_job(server, payload)
        job = poll(server, "w")
        check((job["id"], job["payload"]) == (job_id, payload), job_id, len(job["payload"]))
        is_status(report(server, "/ack", "w", job), 200, "/ack")
    check("\x1b[31m" not in server.log(), "control characters reach the log")
    is_status(server.get("/health"), 200, "/health")
    check(server.get("/health").body == b"ok\n", server.get("/health"))
    check(server.stop() == 0, "it does not end well:", server.log()[-500:])


if __name__ == "__main__":
    main([
        many_enqueue_while_others_look,
        two_workers_poll_at_once,
        the_same_key_twice,
        a_worker_is_killed_with_its_lease,
        an_ack_comes_after_the_lease,
        a_job_fails_every_time,
        a_job_kills_its_workers,
        the_server_is_killed_in_mid_work,
        requests_are_wrong,
    ])
