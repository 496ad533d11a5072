"""Plays all steps against the broker of the arguments (service URL, admin URL, name of the run) and prints what each saw, after a
line `# step`. What differs from run to run, such as message ids and times, is not printed."""

import sys
from concurrent.futures import ThreadPoolExecutor

from acknowledging import STEPS as acknowledging
from consuming import STEPS as consuming
from producing import STEPS as producing
from reading import STEPS as reading
from stage import Stage
from topics import STEPS as topics

# Steps spend most of their time waiting.
AT_ONCE = 6


def main():
    service_url, admin_url, run = sys.argv[1:]
    client = Stage.connect(service_url)
    with ThreadPoolExecutor(AT_ONCE) as workers:
        played = [
            workers.submit(Stage(client, service_url, admin_url, run, step.__name__.replace("_", " ")).play, step)
            for step in producing + consuming + acknowledging + reading + topics
        ]
    for step in played:
        print("\n".join(step.result()))
    client.close()


main()
