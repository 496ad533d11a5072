"""Failures of the dialect `dqueue`: leases that run out, workers that refuse, gateways and brokers that die, as its plain clients see them, over HTTP alone.

    python3 dqueue.py PROGRAM [FAILURE ...]

A client of DQueue asks for a lease and is answered at once: no request here has `wait` unless it says why.
"""

import http.client
import threading
import time

from stage import ask, ask_until_answered, at_once, check, is_status, main, until


def submit(server, payload="work", **more):
    answer = is_status(server.post("/tasks", {"payload": payload, **more}), 201, "/tasks")
    return answer.json()["id"]


def opened(server):
    """Waits until the queue is open. Before that, on a busy machine, a lease request may be answered with 503."""
    answer = ask_until_answered(server.url, "POST", "/tasks/lease", {"worker_id": "opens"})
    is_status(answer, 204, "/tasks/lease of an empty queue")
    return server


def ask_lease(server, worker, **more):
    """Sends one request. Returns the task, or None."""
    answer = server.post("/tasks/lease", {"worker_id": worker, **more})
    if answer.status == 204:
        return None
    return is_status(answer, 200, "/tasks/lease").json()


def lease(server, worker, seconds=15, **more):
    """Asks again and again until there is a task."""
    return until("a task", seconds, lambda: ask_lease(server, worker, **more))[0]


def report(server, verb, worker, task, **more):
    body = {"worker_id": worker, "lease_id": task["lease_id"], **more}
    return server.post(f"/tasks/{task['id']}/{verb}", body)


def state(server, task_id):
    return server.get(f"/tasks/{task_id}").json()["state"]


def stats(server):
    return is_status(server.get("/stats"), 200, "/stats").json()


def counted(server, **expected):
    """Waits until the statistics say this."""

    last = {}

    def look():
        last.update(stats(server))
        return all(last[name] == count for name, count in expected.items())

    try:
        until("it", 30, look)
    except AssertionError as error:
        raise AssertionError(f"the statistics stay {last}, and are not {expected}") from error


def a_task_is_leased_and_acknowledged(stage):
    """By its holder alone; twice; and not refused behind that."""
    server = opened(stage.dev("dqueue"))
    check(ask_lease(server, "w") is None, "an empty queue has a task")
    task_id = submit(server, {"to": "ann"})
    check(state(server, task_id) == "PENDING", server.get(f"/tasks/{task_id}"))
    began = time.monotonic()
    task = lease(server, "w1")
    seconds = time.monotonic() - began
    check(seconds < 2, "a plain lease takes", seconds, "s")
    check((task["id"], task["payload"], task["state"]) == (task_id, {"to": "ann"}, "LEASED"), task)
    check(ask_lease(server, "w2") is None, "it is leased twice")
    for verb in ("ack", "nack"):
        refused = is_status(report(server, verb, "w2", task), 409, f"{verb} by another worker")
        check(refused.code() == "not_current_lease_owner", refused)
        is_status(server.post(f"/tasks/900:7:-1/{verb}", {"worker_id": "w1"}), 404, "an unknown task")
    for _ in range(2):
        is_status(report(server, "ack", "w1", task, result={"n": 1}), 200, "an ack, twice")
    is_status(report(server, "nack", "w1", task), 409, "a nack behind the ack")
    check(state(server, task_id) == "COMPLETED", server.get(f"/tasks/{task_id}"))
    counted(server, completed=1, pending=0, leased=0, failed=0, dead_letter=0, total=1)
    return f"{seconds:.2f} s until a plain lease"


def higher_priorities_come_first(stage):
    server = opened(stage.dev("dqueue"))
    ids = [submit(server, str(number), priority=number) for number in (-5, 0, 7, -1, 0, 100)]
    order = [lease(server, "w")["payload"] for _ in ids]
    check(order == ["7", "100", "0", "0", "-5", "-1"], order)


def a_lease_runs_out(stage):
    """It is PENDING at once, and goes to whoever asks; the report of the first holder is refused, and that of the second one counts."""
    server = opened(stage.dev("dqueue"))
    task_id = submit(server)
    slow = lease(server, "slow", visibility_timeout=2)
    check(slow["attempts"] == 1 and 0 < slow["lease_expires_at"] - slow["now"] <= 2_000, slow)
    _, seconds = until("PENDING", 10, lambda: state(server, task_id) == "PENDING")
    check(seconds < 4.5, "the lease runs out after", seconds)
    refused = is_status(report(server, "ack", "slow", slow), 409, "an ack behind the end")
    check(refused.code() == "lease_expired", refused)
    began = time.monotonic()
    task = lease(server, "heir")
    check(time.monotonic() - began < 2, "it is not available at once")
    check((task["id"], task["attempts"]) == (task_id, 2), task)
    for verb in ("ack", "nack"):
        refused = is_status(report(server, verb, "slow", slow), 409, "a stale report")
        check(refused.code() in ("stale_lease_id", "not_current_lease_owner"), refused)
    is_status(report(server, "ack", "heir", task), 200, "the ack of the holder")
    # The holder of a long lease keeps it, though other leases run out meanwhile.
    submit(server, "long")
    long = lease(server, "patient", visibility_timeout=60)
    time.sleep(4)
    check(ask_lease(server, "w") is None and state(server, long["id"]) == "LEASED", "it lost its lease")
    return f"{seconds:.1f} s until a lease of 2 s was PENDING"


def a_worker_refuses(stage):
    """FAILED until the pause is over, then again; DEAD_LETTER when there are no more retries."""
    server = opened(stage.dev("dqueue"))
    task_id = submit(server, "poison", max_retries=1)
    for attempt in (1, 2):
        task = lease(server, "w", seconds=30)
        check((task["id"], task["attempts"], task["max_retries"]) == (task_id, attempt, 1), task)
        shown = is_status(report(server, "nack", "w", task, reason="no luck"), 200, "nack").json()
        expected = ("FAILED", "PENDING") if attempt == 1 else ("DEAD_LETTER",)
        check(shown["state"] in expected, shown)
    is_status(report(server, "ack", "w", task), 409, "an ack of a dead letter")
    counted(server, dead_letter=1, pending=0, leased=0, failed=0, total=1)


def submits_are_repeated(stage):
    """A key makes one task, of which every repetition is told."""
    server = opened(stage.dev("dqueue"))
    first = submit(server, "a", idempotency_key="k1")
    check(submit(server, "b", idempotency_key="k1") == first, "another task")
    with_header = server.post("/tasks", {"payload": "c"}, {"Idempotency-Key": "k1"})
    check(is_status(with_header, 201).json()["id"] == first, with_header)
    at_once_ids = at_once(*[lambda: submit(server, "a", idempotency_key="k2")] * 20)
    check(len(set(at_once_ids)) == 1, at_once_ids)
    is_status(server.post("/tasks", b'{"payload":', {"Idempotency-Key": "k3"}), 400, "malformed")
    submit(server, "a", idempotency_key="k3")
    # Messages of repetitions that came at once are listed until somebody asks for tasks; none of them is run.
    run = []
    while len(run) < 3:
        task = lease(server, "w")
        run.append(task["payload"])
        is_status(report(server, "ack", "w", task), 200, "ack")
    check(ask_lease(server, "w", wait="2s") is None and run == ["a", "a", "a"], run)
    counted(server, completed=3, pending=0, leased=0)


def plain_workers(server_of, count, completed, over):
    """Workers that ask without waiting, and pause where there is nothing, until it is over."""

    def work(number):
        name = f"w{number}"
        while not over.is_set():
            answer = ask_until_answered(server_of(number), "POST", "/tasks/lease", {"worker_id": name})
            if answer.status == 204:
                time.sleep(0.1)
                continue
            task = is_status(answer, 200, "/tasks/lease").json()
            body = {"worker_id": name, "lease_id": task["lease_id"]}
            path = f"/tasks/{task['id']}/ack"
            told = ask_until_answered(server_of(number), "POST", path, body)
            check(told.status in (200, 409), told)
            if told.status == 200:
                completed.setdefault(task["id"], set()).add(task["lease_id"])

    for number in range(count):
        threading.Thread(target=work, args=(number,), daemon=True).start()


def all_done(submitted, completed, over, seconds):
    until("the end of all tasks", seconds, lambda: completed.keys() >= submitted)
    over.set()
    check(completed.keys() == submitted, "nobody submitted", completed.keys() - submitted)
    twice = {task: leases for task, leases in completed.items() if len(leases) > 1}
    check(not twice, "accepted under two leases:", twice)


def plain_workers_share_the_queue(stage):
    """Twenty who never wait, 200 tasks: each is leased to one of them, and nobody starves."""
    server = opened(stage.dev("dqueue"))
    began = time.monotonic()
    submitted = {submit(server, f"{number}", priority=number % 3 - 1) for number in range(200)}
    completed, over = {}, threading.Event()
    plain_workers(lambda _: server.url, 20, completed, over)
    all_done(submitted, completed, over, 120)
    counted(server, completed=200, pending=0, leased=0, total=200)
    return f"{time.monotonic() - began:.1f} s for 200 tasks"


def one_process_is_killed(stage):
    """The single node: after `kill -9` and a start everything is there, and the lease still counts."""
    server = opened(stage.dev("dqueue"))
    ids = [submit(server, str(number)) for number in range(20)]
    done = lease(server, "w")
    is_status(report(server, "ack", "w", done), 200, "ack")
    held = lease(server, "w", visibility_timeout=60)
    server.kill_and_start()
    check(state(server, done["id"]) == "COMPLETED" and state(server, held["id"]) == "LEASED", "states are lost")
    is_status(report(server, "ack", "w", held), 200, "the ack of a lease from before the crash")
    submitted, completed, over = set(ids) - {done["id"], held["id"]}, {}, threading.Event()
    plain_workers(lambda _: server.url, 5, completed, over)
    all_done(submitted, completed, over, 90)


def one_gateway_of_two_is_killed(stage):
    """Its leases live, its clients go on at the other one, and nothing is lost or done twice."""
    broker = stage.dev("dqueue")
    gateways = [opened(stage.gateway(broker, "dqueue")) for _ in range(2)]
    dying, other = gateways
    held_id = submit(dying, "held")
    held = lease(dying, "w", visibility_timeout=60)
    check(held["id"] == held_id, held)
    submitted, completed = {submit(dying, str(number)) for number in range(100)}, {}
    # They had asked the one that dies, and go to the other one when it is gone.
    gone, over = threading.Event(), threading.Event()
    plain_workers(lambda number: lambda: (other if gone.is_set() or number % 2 else dying).url(), 10, completed, over)
    until("some work", 60, lambda: len(completed) > 20)
    dying.kill()
    gone.set()
    killed = time.monotonic()
    is_status(report(other, "ack", "w", held), 200, "the ack of a lease of the dead gateway")
    more = {submit(other, f"more {number}") for number in range(20)}
    submitted |= more
    first = time.monotonic() - killed
    all_done(submitted, completed, over, 120)
    seconds = time.monotonic() - killed
    dying.start()
    check(state(dying, held_id) == "COMPLETED", "the one that is back knows less")
    return f"{first:.1f} s until 20 more were submitted, {seconds:.1f} s until all was done"


def the_broker_dies(stage):
    """503 with `Retry-After` and the other gateway's address, on every route that needs the broker; when it is back all goes on."""
    broker = stage.dev("dqueue")
    one, other = opened(stage.gateway(broker, "dqueue")), opened(stage.gateway(broker, "dqueue"))
    held_id = submit(one, "held")
    # Each gateway has asked for tasks, so it has a heartbeat by which the other one knows it.
    for gateway in (one, other):
        until("a gateway that is known", 60, lambda: workers_of(gateway) >= 3)
    held = lease(one, "w", visibility_timeout=20)
    waiting_id = submit(other, "waiting")
    broker.kill()
    routes = [
        ("POST", "/tasks", {"payload": "third"}),
        ("POST", "/tasks/lease", {"worker_id": "w2"}),
        ("POST", f"/tasks/{held_id}/ack", {"worker_id": "w", "lease_id": held["lease_id"]}),
    ]
    hints = 0
    for gateway in (one, other):
        for method, path, body in routes:
            # A poll that finds nothing in the moment before it is noticed is no lie.
            refused, seconds = until("503", 60, lambda: refusal(gateway, method, path, body))
            after = refused.headers.get("retry-after", "")
            check(after.isdigit() and 0 < int(after) < 120, method, path, refused.headers)
            check(refused.headers["content-type"] == "application/problem+json", refused.headers)
            hint = refused.headers.get("longhaul-gateway")
            known = {it.url() for it in (broker, one, other)} - {gateway.url()}
            # A gateway that is too young to have looked around knows nobody.
            check(hint is None or hint in known, "the hint of", path, "is", hint)
            hints += hint in (one.url(), other.url())
        is_status(gateway.get("/health"), 200, "/health without a broker")
    broker.start()
    for gateway in (one, other):
        task_id = until("a submit", 60, lambda: accepted(gateway))[0]
        check(state(gateway, task_id) in ("PENDING", "LEASED"), gateway.get(f"/tasks/{task_id}"))
    shown = state(one, held_id)
    body = {"worker_id": "w", "lease_id": held["lease_id"]}
    told = ask_until_answered(one.url, "POST", f"/tasks/{held_id}/ack", body)
    # Behind an outage each lease has its whole time again; what was told before may have arrived.
    check(told.status == 200, "the ack behind the outage:", told, shown)
    ids, end = set(), time.monotonic() + 60
    while waiting_id not in ids and time.monotonic() < end:
        # Its connections come back one by one, and until they have it says 503, which is asked again.
        for gateway in (one, other):
            answer = ask_until_answered(gateway.url, "POST", "/tasks/lease", {"worker_id": "w2"})
            if answer.status == 200:
                task = answer.json()
                ids.add(task["id"])
                body = {"worker_id": "w2", "lease_id": task["lease_id"]}
                told = ask_until_answered(other.url, "POST", f"/tasks/{task['id']}/ack", body)
                is_status(told, 200, "ack")
    check(waiting_id in ids, "the task from before the outage is lost:", ids)
    return f"{hints} of 6 hints name a gateway that lives"


def workers_of(gateway):
    return len(gateway.get("/v1/queues/default/workers").json()["workers"])


def refusal(gateway, method, path, body):
    try:
        answer = ask(gateway.url(), method, path, body)
    except (OSError, http.client.HTTPException) as error:
        raise AssertionError(f"{method} {path}: a gateway without its broker does not answer: {error!r}") from error
    check(answer.status == 503 or answer.status < 300, method, path, answer)
    return answer if answer.status == 503 else None


def accepted(gateway):
    answer = gateway.post("/tasks", {"payload": "behind the outage"})
    check(answer.status in (201, 503), answer)
    return answer.json()["id"] if answer.status == 201 else None


def requests_are_wrong(stage):
    """Each is answered, with nothing done, and the server goes on."""
    server = opened(stage.dev("dqueue"))
    posts = ["/tasks", "/tasks/lease", "/tasks/1:2:-1/ack", "/tasks/1:2:-1/nack"]
    for path in posts:
        for body in (None, b"", b"{", b"[]", b'"x"', b"7", b"null", b"\x00", b"\xff\xfe", b"[" * 100_000, b"{}x"):
            is_status(server.post(path, body), 400, f"{path} {body!r:.40}")
        for method in ("PUT", "DELETE", "PATCH"):
            is_status(ask(server.url(), method, path), 405, f"{method} {path}")
    for wrong in ({"priority": "high"}, {"max_retries": -1}, {"idempotency_key": 7}, {"idempotency_key": "k" * 300}):
        is_status(server.post("/tasks", {"payload": "x", **wrong}), 400, f"/tasks {wrong}")
    for wrong in ({}, {"worker_id": ""}, {"worker_id": 7}, {"worker_id": "w\x1b[31m"}, {"worker_id": "w", "visibility_timeout": "soon"}):
        is_status(server.post("/tasks/lease", wrong), 400, f"/tasks/lease {wrong}")
    for wrong in ({"visibility_timeout": 0}, {"visibility_timeout": -1}, {"visibility_timeout": 10**12}, {"wait": -1}):
        is_status(server.post("/tasks/lease", {"worker_id": "w", **wrong}), 400, f"/tasks/lease {wrong}")
    for name in ("x", "1:2", "..%2F..%2Fetc", "1:2:-1%00", "9" * 400):
        is_status(server.get(f"/tasks/{name}"), 404, name[:20])
        is_status(server.post(f"/tasks/{name}/ack", {"worker_id": "w"}), 404, name[:20])
    is_status(server.post("/tasks", {"payload": "x" * (6 << 20)}), 413, "6 MiB")
    check(stats(server)["total"] == 0, "something was done:", server.get("/stats"))
    for payload in ("", "\x00\x1f", "ä→🦀", {"a": [1, None, {"b": 1.5}]}, [], 7, False, "x" * (1 << 20)):
        task_id = submit(server, payload)
        task = lease(server, "w")
        check((task["id"], task["payload"]) == (task_id, payload), task_id, f"{task['payload']!r:.80}")
        is_status(report(server, "ack", "w", task), 200, "ack")
    check("\x1b[31m" not in server.log(), "control characters reach the log")
    check(server.stop() == 0, "it does not end well:", server.log()[-500:])


if __name__ == "__main__":
    main([
        a_task_is_leased_and_acknowledged,
        higher_priorities_come_first,
        a_lease_runs_out,
        a_worker_refuses,
        submits_are_repeated,
        plain_workers_share_the_queue,
        one_process_is_killed,
        one_gateway_of_two_is_killed,
        the_broker_dies,
        requests_are_wrong,
    ])
