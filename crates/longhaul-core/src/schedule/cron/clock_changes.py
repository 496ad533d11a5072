"""Writes clock_changes.txt: when expressions fire around changes of clocks, minute by minute, by
Python's zoneinfo and the rules of docs/schedules.md. It knows nothing of the code that it judges.

Each line: zone, a UTC instant 14 hours before a change, the expression, and the minutes from that
instant on at which it fires, for 28 hours.
"""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

# Changes that have happened: their rules do not change any more.
CHANGES = {
    "Europe/Berlin": ["2024-03-31T01:00", "2024-10-27T01:00"],
    "Europe/London": ["2024-03-31T01:00", "2024-10-27T01:00"],
    "America/New_York": ["2024-03-10T07:00", "2024-11-03T06:00"],
    "America/Santiago": ["2024-09-08T04:00", "2024-04-07T03:00"],
    "Africa/Cairo": ["2024-04-25T22:00", "2024-10-31T21:00"],
    "Australia/Lord_Howe": ["2024-10-05T15:30", "2024-04-06T15:00"],
    "Atlantic/Azores": ["2024-03-31T01:00", "2024-10-27T01:00"],
    # A whole day did not exist.
    "Pacific/Apia": ["2011-12-30T10:00"],
}
EXPRESSIONS = [
    "30 2 * * *", "0 2,14 * * *", "*/20 2 * * *", "0,30 2 * * *", "* 2 * * *", "30 1,2 * * *",
    "30 1-5 * * *", "0 */2 * * *", "*/20 1-2 * * *", "59 1,2 * * *", "0 0 * * *", "0 0,12 * * *",
    "15 0-1 * * *", "*/15 0 * * *", "0 1 * * *", "45 1 * * *", "0 3 * * *", "0 * * * *",
    "30 * * * *", "*/20 * * * *",
]
MINUTE = timedelta(minutes=1)


def numbers(field, count):
    found = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        low, high = (0, count - 1) if span == "*" else (int(low), int(high or low))
        found.update(range(low, high + 1, int(step or 1)))
    return found


def fires(zone, begin, expression):
    minute, hour = expression.split()[:2]
    minutes, hours = numbers(minute, 60), numbers(hour, 24)

    def matches(shown):
        return shown.minute in minutes and shown.hour in hours

    def shown_at(instant):
        return instant.astimezone(zone).replace(tzinfo=None)

    # What the clocks have shown for a day and more before.
    shown_before, previous = set(), None
    for back in range(-30 * 60, 28 * 60):
        instant = begin + back * MINUTE
        shown = shown_at(instant)
        if len(hours) == 24:
            is_slot = matches(shown)
        else:
            missing = set()
            if previous is not None and shown > previous + MINUTE:
                step = previous + MINUTE
                while step < shown:
                    missing.add(step)
                    step += MINUTE
            is_slot = (matches(shown) and shown not in shown_before) or any(map(matches, missing))
        shown_before.add(shown)
        previous = shown
        if is_slot and back >= 0:
            yield back


def main():
    lines = []
    for name, changes in CHANGES.items():
        for change in changes:
            change = datetime.fromisoformat(change).replace(tzinfo=timezone.utc)
            zone = ZoneInfo(name)
            offsets = [(change + by).astimezone(zone).utcoffset() for by in (-MINUTE, timedelta())]
            assert offsets[0] != offsets[1], f"{name} {change}: {offsets}"
            begin = change - timedelta(hours=14)
            for expression in EXPRESSIONS:
                slots = ",".join(str(slot) for slot in fires(zone, begin, expression))
                lines.append(f"{name}|{begin:%Y-%m-%dT%H:%M:%SZ}|{expression}|{slots}\n")
    Path(__file__).with_name("clock_changes.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
