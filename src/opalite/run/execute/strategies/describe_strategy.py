"""A sentence that describes how launches reach the device."""

from __future__ import annotations

from ....cl.queue.launch_sequence import LaunchSequence
from ....cl.queue.recordable_queues import RecordableQueues
from ..shape_instance import ShapeInstance
from .queue_strategy import Queue


def describe_queueing(instance: ShapeInstance, plain: Queue) -> str:
    """The sentence: one by one and why, joined, linked, or recorded and replayed.

    plain: the strategy that serves every run.
    """
    rt, megakernel, persistent = instance.rt, instance.megakernel, instance.persistent
    usual = megakernel or plain
    recordings = [p for p in usual.phases if isinstance(p, LaunchSequence)]
    replayed = [r for r in recordings if r.replays]
    stretches = f" in {len(recordings)} parts" if len(recordings) > 1 else ""
    parts = [f"launches: {len(instance.launch_steps)}{stretches}"]
    if megakernel is not None:
        parts.append(megakernel.description)
    linked = persistent.description if persistent is not None else ""
    if linked:
        parts.append(linked)
    elif replayed:
        count = "one recording" if len(replayed) == 1 else f"{len(replayed)} recordings"
        parts.append(f"replayed as {count} from the second run on ({rt.replay})")
    else:
        refusal = next((r.refusal for r in recordings if r.refusal), "") or rt.replay
        if persistent is not None and persistent.why:
            refusal = persistent.why
        why = f"a replay pays from {refusal.min_launches} on" if isinstance(refusal, RecordableQueues) else refusal
        parts.append(f"enqueued one by one: {why}")
    if rt.flush_every:
        parts.append(f"flushed every {rt.flush_every}")
    return "; ".join(parts)
