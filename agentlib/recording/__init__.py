"""A real run, saved and played again: what came back over the wire, with no key and nobody's name in it.

    tape = record(None, "mine.json")                    # None: the endpoint in .env; or a Model, or a client
    run_task("…", client=tape, on_event=tape.on_event)
    run_task("…", client=replay("mine.json"))           # no network, no key, no waiting

Kept of each reply: how long it took, its status, ``retry-after``, and those parts of its JSON body that the loop reads.
Not kept: the requests (so no question, no tool result, no key), all other headers (cookies, organisation, request
ids), and bodies that are no JSON object. The model's own words *are* kept: do not record what nobody may read.

A recording is played in its order, whatever is asked. Under the limits of the recorded run it ends as that run did;
under tighter ones it shows how that run would have ended.
"""

from .file import RecordingError
from .player import Replay, replay
from .tape import Tape, record

__all__ = ["RecordingError", "Replay", "Tape", "record", "replay"]
