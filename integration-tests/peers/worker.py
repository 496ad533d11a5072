"""A worker of the dialect `jobs` that takes one job and never says anything again: it is killed, or hangs.

    python3 worker.py URL WORKER_ID
"""

import json
import sys
import time

from stage import ask

url, name = sys.argv[1], sys.argv[2]
while True:
    answer = ask(url, "POST", "/poll", {"worker_id": name})
    if answer.status == 200:
        break
print(json.dumps(answer.json()), flush=True)
time.sleep(3600)
